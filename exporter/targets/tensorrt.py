"""Files for TensorRT."""

from dataclasses import replace

from exporter.targets.attention_forms import PRIMITIVE
from exporter.targets.record import Target
from exporter.vocabulary import Layout, Method, Precision

__all__ = [
    "TENSORRT",
    "TENSORRT_8",
    "TENSORRT_FP8",
    "TENSORRT_FP16",
    "TENSORRT_INT8",
    "TENSORRT_PLUGIN_FP16",
]

# TensorRT's attention fusion needs the pattern MatMul, Softmax, MatMul, and its top-k needs sorted = 1. Its
# parser supports the Attention operator of opset 23 late and only in part. Padded a-STAR needs no plugin and no
# data-dependent shapes.
TENSORRT = Target(
    name="tensorrt-fp32",
    runtime="tensorrt",
    precision=Precision.FP32,
    layouts=(Layout.PADDED, Layout.SHRINKING),
    opset=20,
    passes=PRIMITIVE,
    largest_top_k=3840,  # ITopKLayer's limit
    least_version=(10,),
    instead="tensorrt8-fp32",
)

# The parser of TensorRT 8.6 ends at opset 17. It has no plugins with data-dependent shapes; int64 becomes int32.
TENSORRT_8 = replace(
    TENSORRT,
    name="tensorrt8-fp32",
    opset=18,
    passes=(*PRIMITIVE, "opset_17"),
    methods=(Method.STAR, Method.TOME),
    least_version=(),
    instead="",
)

# TensorRT 11 takes precision from the graph alone, as TensorRT 10 does with strong typing.
TENSORRT_FP16 = replace(
    TENSORRT, name="tensorrt-fp16", precision=Precision.FP16, passes=(*PRIMITIVE, "to_fp16")
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

# The rest of the graph is fp16: attention is fused in half precision only, and GELU and sums are memory-bound.
TENSORRT_INT8 = replace(
    TENSORRT,
    name="tensorrt-int8",
    precision=Precision.INT8,
    passes=(*PRIMITIVE, "split_gemm"),
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
