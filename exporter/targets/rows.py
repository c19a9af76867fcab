"""The deployment targets: one row for each runtime and precision."""

from dataclasses import replace

from exporter.errors import ModelError
from exporter.targets.record import Target
from exporter.tensor_names import SLICED, VARIANTS
from exporter.vocabulary import Layout, Method, Precision

__all__ = [
    "ONNXRUNTIME",
    "ONNXRUNTIME_FP16",
    "ONNXRUNTIME_INT8",
    "ONNXRUNTIME_OPS",
    "ONNXRUNTIME_OPSET17",
    "OPENVINO",
    "OPENVINO_BF16",
    "OPENVINO_INT8",
    "OPENVINO_INT8_BF16",
    "TARGETS",
    "TENSORRT",
    "TENSORRT_8",
    "TENSORRT_ATTENTION_FP16",
    "TENSORRT_FP8",
    "TENSORRT_FP16",
    "TENSORRT_INT8",
    "TENSORRT_PACKED_FP16",
    "TENSORRT_PLUGIN_FP16",
    "target_named",
    "variant_roles",
]


# _PRIMITIVE: attention as MatMul, Softmax, MatMul, for the runtime to fuse. _FUSED: as one node, with more passes.
_PRIMITIVE = (
    "name_decisions",
    "expand_attention",
    "expand_factors",
    "expand_pairing",
    "expand_merging",
    "expand_selection",
    "expand_packing",
)
_FUSED = (
    "name_decisions",
    "fuse_attention",
    "fold_attention_biases",
    "shorten_scores",
    "rank_prefix",
    "select_early",
    "spread_masks",
    "expand_attention",
    "expand_factors",
    "expand_pairing",
    "expand_merging",
    "expand_selection",
    "expand_packing",
)

ONNXRUNTIME = Target(
    name="onnxruntime-fp32",
    runtime="onnxruntime",
    precision=Precision.FP32,
    layouts=(Layout.PACKED, Layout.SHRINKING, Layout.PADDED),
    opset=23,  # the first with an Attention operator
    passes=(*_FUSED, "sort_once", "linear_as_gemm"),
)

# Chooses in one node a layer, by a library that the user compiles; the default file needs none.
ONNXRUNTIME_OPS = replace(
    ONNXRUNTIME,
    name="onnxruntime-ops-fp32",
    passes=("name_decisions", "choose_in_one", *ONNXRUNTIME.passes[1:]),
    needs_operators=True,
)

# TensorRT's attention fusion needs the pattern MatMul, Softmax, MatMul, and its top-k needs sorted = 1. Its
# parser supports the Attention operator of opset 23 late and only in part. Padded a-STAR needs no plugin and no
# data-dependent shapes.
TENSORRT = Target(
    name="tensorrt-fp32",
    runtime="tensorrt",
    precision=Precision.FP32,
    layouts=(Layout.PADDED, Layout.SHRINKING),
    opset=20,
    passes=_PRIMITIVE,
    largest_top_k=3840,  # ITopKLayer's limit
    least_version=(10,),
    instead="tensorrt8-fp32",
)

# The parser of TensorRT 8.6 ends at opset 17. It has no plugins with data-dependent shapes; int64 becomes int32.
TENSORRT_8 = replace(
    TENSORRT,
    name="tensorrt8-fp32",
    opset=18,
    passes=(*_PRIMITIVE, "opset_17"),
    methods=(Method.STAR, Method.TOME),
    least_version=(),
    instead="",
)

# TensorRT 11 takes precision from the graph alone, as TensorRT 10 does with strong typing.
TENSORRT_FP16 = replace(
    TENSORRT, name="tensorrt-fp16", precision=Precision.FP16, passes=(*_PRIMITIVE, "to_fp16")
)

# From 10.15 on, the parser makes IAttention of the node: one fused kernel, or the build fails. In fp32 it has none.
TENSORRT_ATTENTION_FP16 = replace(
    TENSORRT_FP16,
    name="tensorrt-attention-fp16",
    opset=23,
    passes=(
        "name_decisions",
        "standard_attention",
        "spread_masks",
        *_PRIMITIVE[1:],
        "to_fp16",
        "open_softmax",
    ),
    least_version=(10, 15),
    instead=TENSORRT_FP16.name,
)

# Selects in one node a layer, by the plugin library that the user compiles; its kernel takes 4096 patches at most.
TENSORRT_PLUGIN_FP16 = replace(
    TENSORRT_FP16,
    name="tensorrt-plugin-fp16",
    passes=("name_decisions", "select_in_one", *TENSORRT_FP16.passes[1:]),
    methods=(Method.STAR,),
    largest_top_k=4096,
    least_version=(10, 7),  # the first that prefers a plugin to the function of its name
    instead=TENSORRT_FP16.name,
)

# a-STAR's tokens end to end, with the number of each image's tokens in place of padding and a mask. The parser of
# 11.0 reads an operator of this name with other inputs.
TENSORRT_PACKED_FP16 = replace(
    TENSORRT_FP16,
    name="tensorrt-packed-fp16",
    layouts=(Layout.PACKED,),
    passes=("name_decisions", "packed_attention", *TENSORRT_FP16.passes[1:]),
    methods=(Method.A_STAR,),
    least_version=(11, 1),
    instead=TENSORRT_FP16.name,
)

# The rest of the graph is fp16: attention is fused in half precision only, and GELU and sums are memory-bound.
TENSORRT_INT8 = replace(
    TENSORRT,
    name="tensorrt-int8",
    precision=Precision.INT8,
    passes=(*_PRIMITIVE, "split_gemm"),
    quantization="symmetric",
    passes_after=("to_fp16",),
)

# E4M3 in linear layers and in both products of attention. GPUs have it from compute capability 8.9 on, TensorRT a
# scale for each column of an FP8 matrix from 10.6 on.
TENSORRT_FP8 = replace(
    TENSORRT_INT8,
    name="tensorrt-fp8",
    precision=Precision.FP8,
    quantization="fp8",
    least_version=(10, 6),
    least_sm=(8, 9),
    instead=TENSORRT_INT8.name,
)

ONNXRUNTIME_FP16 = replace(
    ONNXRUNTIME, name="onnxruntime-fp16", precision=Precision.FP16, passes=(*ONNXRUNTIME.passes, "to_fp16")
)

ONNXRUNTIME_INT8 = replace(
    ONNXRUNTIME,
    name="onnxruntime-int8",
    precision=Precision.INT8,
    # Linear layers are MatMul, not Gemm, so that query, key and value share the quantized tokens.
    passes=(*_FUSED, "sort_once", "patches_as_linear", "split_gemm"),
    quantization="dynamic",
)

# For ONNX Runtime before 1.23, the first that reads opset 23.
ONNXRUNTIME_OPSET17 = replace(
    ONNXRUNTIME, name="onnxruntime-opset17-fp32", opset=18, passes=(*_PRIMITIVE, "sort_once", "opset_17")
)

# OpenVINO decomposes the attention node and fuses it again. Its GatherND is slow, and its top-k needs sorted = 1.
OPENVINO = Target(
    name="openvino-fp32",
    runtime="openvino",
    precision=Precision.FP32,
    layouts=(Layout.PADDED,),
    opset=23,
    passes=(*_FUSED, "flat_gathers"),
)

# OpenVINO's own conversion to bf16 at load time would convert the scores too.
OPENVINO_BF16 = replace(
    OPENVINO, name="openvino-bf16", precision=Precision.BF16, passes=(*OPENVINO.passes, "to_bf16")
)

OPENVINO_INT8 = replace(
    OPENVINO,
    name="openvino-int8",
    precision=Precision.INT8,
    # Attention is in parts, for pairs between them; their masks need no row for every query.
    passes=(
        *("split_heads" if name == "spread_masks" else name for name in OPENVINO.passes),
        *("patches_as_linear", "split_gemm"),
    ),
    quantization="qdq",
)

# As "qdq", OpenVINO 2026.4 computes EVA-02 wrongly between bf16 tensors.
OPENVINO_INT8_BF16 = replace(
    OPENVINO_INT8,
    name="openvino-int8-bf16",
    passes=(*OPENVINO.passes, "patches_as_linear", "split_gemm"),
    quantization="qdq-linear",
    passes_after=("to_bf16",),
)

TARGETS = {
    target.name: target
    for target in (
        ONNXRUNTIME,
        ONNXRUNTIME_FP16,
        ONNXRUNTIME_INT8,
        ONNXRUNTIME_OPS,
        ONNXRUNTIME_OPSET17,
        OPENVINO,
        OPENVINO_BF16,
        OPENVINO_INT8,
        OPENVINO_INT8_BF16,
        TENSORRT,
        TENSORRT_8,
        TENSORRT_FP16,
        TENSORRT_INT8,
        TENSORRT_ATTENTION_FP16,
        TENSORRT_FP8,
        TENSORRT_PLUGIN_FP16,
        TENSORRT_PACKED_FP16,
    )
}


def target_named(name: str) -> Target:
    """Return the target of that name; ModelError lists the known names."""
    if name not in TARGETS:
        raise ModelError("target", repr(name), f"one of {', '.join(TARGETS)}")
    return TARGETS[name]


def variant_roles(target: Target, *, adaptive: bool) -> tuple[str, ...]:
    """Return the variants that are written beside a pruned model, for `check` and for `bench` on engines.

    The sliced one has fixed counts; those of a-STAR, which is `adaptive`, depend on the image.
    """
    sliced = target.runtime == TENSORRT.runtime and not adaptive
    return (*VARIANTS, SLICED) if sliced else VARIANTS
