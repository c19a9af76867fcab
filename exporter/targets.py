"""The runtimes a model is lowered for: one frozen row each."""

from dataclasses import dataclass, replace

from exporter.errors import ModelError

__all__ = [
    "ONNXRUNTIME",
    "ONNXRUNTIME_FP16",
    "ONNXRUNTIME_INT8",
    "OPENVINO",
    "OPENVINO_BF16",
    "OPENVINO_INT8",
    "TARGETS",
    "TENSORRT",
    "Target",
    "target_named",
]


@dataclass(frozen=True)
class Target:
    """What a lowered file is for, and how it is made.

    `flavours` are the forms of a-STAR that the runtime takes, the one that suits it best first: see
    `exporter.pruning.tokens`. `passes` are the graph passes in the order they run; see
    `exporter.lowering.pipeline`. `quantization` is the form of INT8 that comes after them, "" where there is none:
    see `exporter.lowering.quantize`.
    """

    name: str
    runtime: str
    precision: str
    flavours: tuple[str, ...]
    opset: int
    passes: tuple[str, ...]
    quantization: str = ""

    def flavour(self, wanted: str | None) -> str:
        """The form of a-STAR that is wanted, by default the best; ModelError where the runtime cannot take it."""
        if wanted is None:
            return self.flavours[0]
        if wanted not in self.flavours:
            raise ModelError(
                f"target {self.name}", f"flavour {wanted!r}", f"one of {', '.join(self.flavours)}"
            )
        return wanted

    def file_name(self, model: str, method: str) -> str:
        """The file of one model under one method ("dense" for the unpruned one)."""
        return f"{model}.{method}.{self.name}.onnx"


_PRIMITIVE = ("name_decisions", "expand_attention", "expand_selection")

ONNXRUNTIME = Target(
    name="onnxruntime-fp32",
    runtime="onnxruntime",
    precision="fp32",
    flavours=("packed", "shrinking", "padded"),
    opset=23,  # the first with an Attention operator
    passes=(
        "name_decisions",
        "fuse_attention",
        "fold_attention_biases",
        "shorten_scores",
        "select_early",
        "spread_masks",
        "expand_attention",
        "expand_selection",
        "unsorted_top_k",
        "linear_as_gemm",
    ),
)

# Its attention fusion wants MatMul, Softmax, MatMul as they are, and its top-k sorted = 1. An operator of
# opset 23, Attention, came to its parser late and unevenly. Padded a-STAR needs neither a plugin nor sizes that
# follow the data.
TENSORRT = Target(
    name="tensorrt-fp32",
    runtime="tensorrt",
    precision="fp32",
    flavours=("padded", "shrinking"),
    opset=20,
    passes=("name_decisions", "expand_attention", "expand_selection"),
)

ONNXRUNTIME_FP16 = replace(
    ONNXRUNTIME, name="onnxruntime-fp16", precision="fp16", passes=(*ONNXRUNTIME.passes, "to_fp16")
)

ONNXRUNTIME_INT8 = replace(
    ONNXRUNTIME,
    name="onnxruntime-int8",
    precision="int8",
    passes=(*ONNXRUNTIME.passes, "patches_as_linear", "split_gemm"),
    quantization="dynamic",
)

# OpenVINO finds attention by itself in the primitive form, and then joins more around it.
OPENVINO = Target(
    name="openvino-fp32",
    runtime="openvino",
    precision="fp32",
    flavours=("padded",),
    opset=20,  # the first with a GELU
    passes=_PRIMITIVE,
)

# The file is the fp32 one: OpenVINO rounds as it loads, on CPUs that compute in bf16.
OPENVINO_BF16 = replace(OPENVINO, name="openvino-bf16", precision="bf16")

OPENVINO_INT8 = replace(
    OPENVINO,
    name="openvino-int8",
    precision="int8",
    passes=(*_PRIMITIVE, "patches_as_linear", "split_gemm"),
    quantization="qdq",
)

TARGETS = {
    target.name: target
    for target in (
        ONNXRUNTIME,
        ONNXRUNTIME_FP16,
        ONNXRUNTIME_INT8,
        OPENVINO,
        OPENVINO_BF16,
        OPENVINO_INT8,
        TENSORRT,
    )
}


def target_named(name: str) -> Target:
    """The row of that name, or ModelError with the names there are."""
    if name not in TARGETS:
        raise ModelError("target", repr(name), f"one of {', '.join(TARGETS)}")
    return TARGETS[name]
