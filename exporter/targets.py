"""The runtimes a model is lowered for: one frozen row each."""

from dataclasses import dataclass

from exporter.errors import ModelError

__all__ = ["ONNXRUNTIME", "TARGETS", "Target", "target_named"]


@dataclass(frozen=True)
class Target:
    """What a lowered file is for, and how it is made.

    `passes` are the graph passes in the order they run; see `exporter.lowering.pipeline`.
    """

    name: str
    runtime: str
    precision: str
    flavour: str
    opset: int
    passes: tuple[str, ...]

    def file_name(self, model: str, method: str) -> str:
        """The file of one model under one method ("dense" for the unpruned one)."""
        return f"{model}.{method}.{self.name}.onnx"


ONNXRUNTIME = Target(
    name="onnxruntime-fp32",
    runtime="onnxruntime",
    precision="fp32",
    flavour="static",
    opset=23,  # the first with an Attention operator
    passes=(
        "name_decisions",
        "fuse_attention",
        "fold_attention_biases",
        "shorten_scores",
        "select_early",
        "expand_attention",
        "expand_selection",
        "unsorted_top_k",
        "linear_as_gemm",
    ),
)

TARGETS = {target.name: target for target in (ONNXRUNTIME,)}


def target_named(name: str) -> Target:
    """The row of that name, or ModelError with the names there are."""
    if name not in TARGETS:
        raise ModelError("target", repr(name), f"one of {', '.join(TARGETS)}")
    return TARGETS[name]
