"""The record of a deployment target: a runtime and a precision, and how a model is lowered for them."""

from dataclasses import dataclass

from exporter.errors import ModelError
from exporter.vocabulary import Layout, Method, Precision

__all__ = ["Target"]


@dataclass(frozen=True)
class Target:
    """A runtime and precision, and how a model is lowered for them.

    `layouts` are the a-STAR layouts that the runtime supports, the best one first (`exporter.pruning`).
    `passes` are the graph passes in execution order (`exporter.lowering.pipeline`). `quantization` is the
    scheme applied after them, "" for none (`exporter.lowering.quantize`). `passes_after` run on the quantized
    graph. `methods` are the pruning methods that the runtime supports, `largest_top_k` the most that its top-k
    returns, None for any number. `least_version` is the first version of the runtime that takes the file, and
    `least_sm` the lowest compute capability of a GPU that does; () for any. `instead` is the target to take on an
    older one.
    """

    name: str
    runtime: str
    precision: Precision
    layouts: tuple[Layout, ...]
    opset: int
    passes: tuple[str, ...]
    quantization: str = ""
    passes_after: tuple[str, ...] = ()
    methods: tuple[Method, ...] = (Method.STAR, Method.A_STAR, Method.TOME)
    largest_top_k: int | None = None
    least_version: tuple[int, ...] = ()
    least_sm: tuple[int, ...] = ()
    instead: str = ""

    @property
    def takes_ranges(self) -> bool:
        """Whether quantization needs activation ranges, measured on images during lowering."""
        return self.quantization not in ("", "dynamic")

    @property
    def reduced(self) -> tuple[Precision, ...]:
        """The precisions below fp32: of linear layers, and bf16 where the rest is converted to it."""
        rest = (Precision.BF16,) if "to_bf16" in self.passes_after else ()
        return tuple(each for each in (self.precision, *rest) if each != Precision.FP32)

    def layout(self, wanted: Layout | str | None) -> Layout:
        """Return the wanted a-STAR layout, by default the best; ModelError if the runtime does not support it."""
        if wanted is None:
            return self.layouts[0]
        wanted = Layout.named(wanted)
        if wanted not in self.layouts:
            raise ModelError(f"target {self.name}", f"layout {wanted}", f"one of {', '.join(self.layouts)}")
        return wanted

    def check_method(self, method: Method) -> None:
        """Raise ModelError if the runtime does not support the method."""
        if method not in self.methods:
            raise ModelError(f"target {self.name}", f"method {method}", " or ".join(self.methods))

    def check_top_k(self, most: int) -> None:
        """Raise ModelError if a top-k of the model returns `most` patches, and the runtime's returns fewer."""
        if self.largest_top_k is not None and most > self.largest_top_k:
            expected = f"at most {self.largest_top_k}, the runtime's limit"
            raise ModelError(f"target {self.name}", f"a top-k of {most} patches", expected)

    def file_name(self, model: str, method: str) -> str:
        """Return the file name of a model pruned by `method` ("dense" for the unpruned model)."""
        return f"{model}.{method}.{self.name}.onnx"
