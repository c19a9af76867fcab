"""The runtimes a model is lowered for: one frozen row each."""

from dataclasses import dataclass, replace

from exporter.errors import ModelError
from exporter.vocabulary import Layout, Method, Precision

__all__ = [
    "ONNXRUNTIME",
    "ONNXRUNTIME_FP16",
    "ONNXRUNTIME_INT8",
    "OPENVINO",
    "OPENVINO_BF16",
    "OPENVINO_INT8",
    "TARGETS",
    "TENSORRT",
    "TENSORRT_8",
    "TENSORRT_FP16",
    "TENSORRT_INT8",
    "Target",
    "target_named",
]


@dataclass(frozen=True)
class Target:
    """What a lowered file is for, and how it is made.

    `layouts` are the forms of a-STAR that the runtime takes, the one that suits it best first: see
    `exporter.pruning.tokens`. `passes` are the graph passes in the order they run; see
    `exporter.lowering.pipeline`. `quantization` is the form of INT8 that comes after them, "" where there is none:
    see `exporter.lowering.quantize`. `passes_after` are those over the quantized graph. `methods` are those of a
    schedule that the runtime can follow.
    """

    name: str
    runtime: str
    precision: Precision
    layouts: tuple[Layout, ...]
    opset: int
    passes: tuple[str, ...]
    quantization: str = ""
    passes_after: tuple[str, ...] = ()
    methods: tuple[Method, ...] = (Method.STAR, Method.A_STAR)

    @property
    def takes_ranges(self) -> bool:
        """Whether ranges of activations come from images, as the graph is made."""
        return self.quantization not in ("", "dynamic")

    def layout(self, wanted: Layout | str | None) -> Layout:
        """The form of a-STAR that is wanted, by default the best; ModelError where the runtime cannot take it."""
        if wanted is None:
            return self.layouts[0]
        wanted = Layout.named(wanted)
        if wanted not in self.layouts:
            raise ModelError(f"target {self.name}", f"layout {wanted}", f"one of {', '.join(self.layouts)}")
        return wanted

    def check_method(self, method: Method) -> None:
        """ModelError where the runtime cannot follow schedules of that method."""
        if method not in self.methods:
            raise ModelError(f"target {self.name}", f"method {method}", " or ".join(self.methods))

    def file_name(self, model: str, method: str) -> str:
        """The file of one model under one method ("dense" for the unpruned one)."""
        return f"{model}.{method}.{self.name}.onnx"


# Attention as MatMul, Softmax, MatMul for a runtime to recognise; or as one node, and all that this allows.
_PRIMITIVE = ("name_decisions", "expand_attention", "expand_selection")
_FUSED = (
    "name_decisions",
    "fuse_attention",
    "fold_attention_biases",
    "shorten_scores",
    "rank_prefix",
    "select_early",
    "spread_masks",
    "expand_attention",
    "expand_selection",
)

ONNXRUNTIME = Target(
    name="onnxruntime-fp32",
    runtime="onnxruntime",
    precision=Precision.FP32,
    layouts=(Layout.PACKED, Layout.SHRINKING, Layout.PADDED),
    opset=23,  # the first with an Attention operator
    passes=(*_FUSED, "sort_once", "linear_as_gemm"),
)

# Its attention fusion wants MatMul, Softmax, MatMul as they are, and its top-k sorted = 1. An operator of
# opset 23, Attention, came to its parser late and unevenly. Padded a-STAR needs neither a plugin nor sizes that
# follow the data.
TENSORRT = Target(
    name="tensorrt-fp32",
    runtime="tensorrt",
    precision=Precision.FP32,
    layouts=(Layout.PADDED, Layout.SHRINKING),
    opset=20,
    passes=_PRIMITIVE,
)

# The opset that its parser ends with. It has no plugin with sizes that follow the data, and int64 becomes int32.
TENSORRT_8 = replace(
    TENSORRT, name="tensorrt8-fp32", opset=18, passes=(*_PRIMITIVE, "opset_17"), methods=(Method.STAR,)
)

# From 11 on TensorRT takes precision from the graph alone, as 10 does when its typing is strong.
TENSORRT_FP16 = replace(
    TENSORRT, name="tensorrt-fp16", precision=Precision.FP16, passes=(*_PRIMITIVE, "to_fp16")
)

# What is not INT8 is fp16: attention is fused in half precision alone, and GELU and sums are bound by memory.
TENSORRT_INT8 = replace(
    TENSORRT,
    name="tensorrt-int8",
    precision=Precision.INT8,
    passes=(*_PRIMITIVE, "split_gemm"),
    quantization="symmetric",
    passes_after=("to_fp16",),
)

ONNXRUNTIME_FP16 = replace(
    ONNXRUNTIME, name="onnxruntime-fp16", precision=Precision.FP16, passes=(*ONNXRUNTIME.passes, "to_fp16")
)

ONNXRUNTIME_INT8 = replace(
    ONNXRUNTIME,
    name="onnxruntime-int8",
    precision=Precision.INT8,
    # Not as Gemm: query, key and value then share the quantized tokens.
    passes=(*_FUSED, "sort_once", "patches_as_linear", "split_gemm"),
    quantization="dynamic",
)

# OpenVINO takes the attention node apart and finds it again. Its GatherND is slow, and its top-k wants sorted = 1.
OPENVINO = Target(
    name="openvino-fp32",
    runtime="openvino",
    precision=Precision.FP32,
    layouts=(Layout.PADDED,),
    opset=23,
    passes=(*_FUSED, "flat_gathers"),
)

# The file is the fp32 one: OpenVINO rounds as it loads, on CPUs that compute in bf16.
OPENVINO_BF16 = replace(OPENVINO, name="openvino-bf16", precision=Precision.BF16)

OPENVINO_INT8 = replace(
    OPENVINO,
    name="openvino-int8",
    precision=Precision.INT8,
    passes=(*OPENVINO.passes, "patches_as_linear", "split_gemm"),
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
        TENSORRT_8,
        TENSORRT_FP16,
        TENSORRT_INT8,
    )
}


def target_named(name: str) -> Target:
    """The row of that name, or ModelError with the names there are."""
    if name not in TARGETS:
        raise ModelError("target", repr(name), f"one of {', '.join(TARGETS)}")
    return TARGETS[name]
