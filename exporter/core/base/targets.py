"""The deployment targets: the records, and a row for each runtime, and for each of its precisions."""

from dataclasses import dataclass, replace

from exporter.core.base.errors import ModelError
from exporter.core.base.tensor_names import INSTRUMENTED, SLICED
from exporter.core.base.vocabulary import Layout, Precision


@dataclass(frozen=True)
class Runtime:
    """A program that runs lowered models, and what is known of it before it is imported.

    `title` is its name in texts. One of ONNX Runtime has its execution `providers`, the preferred one
    first: after a GPU's, the CPU may run shape operators only. `profiled` says that its profiler
    tells time by class of operator.

    One with `engines` runs no ONNX file but what `build` wrote of it, for fixed batch sizes, on a GPU
    whose clock `bench` reads too. `program` is NVIDIA's that builds and times engines. A tool that
    builds `ahead` needs neither GPU nor driver for it. `plugins` says that engines may call a library
    of ours. `stand_in` runs the same ONNX file on the export machine.
    """

    name: str
    title: str
    providers: tuple[str, ...] = ()
    profiled: bool = False
    engines: bool = False
    program: str = ""
    ahead: bool = False
    plugins: bool = False
    stand_in: "Runtime | None" = None


ONNXRUNTIME_CPU = Runtime(
    "onnxruntime", "ONNX Runtime", providers=("CPUExecutionProvider",), profiled=True
)
ONNXRUNTIME_CUDA = Runtime(
    "onnxruntime-cuda",
    "ONNX Runtime on CUDA",
    providers=("CUDAExecutionProvider", "CPUExecutionProvider"),
)
ONNXRUNTIME_TENSORRT = Runtime(
    "onnxruntime-tensorrt",
    "ONNX Runtime on TensorRT",
    providers=(
        "TensorrtExecutionProvider",
        "CUDAExecutionProvider",
        "CPUExecutionProvider",
    ),
)
# A package of its own, or ONNX Runtime Web in a browser.
ONNXRUNTIME_WEBGPU = Runtime(
    "onnxruntime-webgpu",
    "ONNX Runtime on WebGPU",
    providers=("WebGpuExecutionProvider", "CPUExecutionProvider"),
    stand_in=ONNXRUNTIME_CPU,
)
OPENVINO_CPU = Runtime("openvino", "OpenVINO")
TRT = Runtime(
    "tensorrt",
    "TensorRT",
    engines=True,
    program="trtexec",
    plugins=True,
    stand_in=ONNXRUNTIME_CPU,
)
RTX = Runtime(
    "tensorrt-rtx",
    "TensorRT for RTX",
    engines=True,
    program="tensorrt_rtx",  # of its SDK; most flags are those of trtexec 10
    ahead=True,
    stand_in=ONNXRUNTIME_CPU,
)
RUNTIMES = {
    runtime.name: runtime
    for runtime in (
        ONNXRUNTIME_CPU,
        ONNXRUNTIME_CUDA,
        ONNXRUNTIME_TENSORRT,
        ONNXRUNTIME_WEBGPU,
        OPENVINO_CPU,
        TRT,
        RTX,
    )
}
# It runs the models before they are lowered.
PYTORCH = Runtime("pytorch", "PyTorch")


@dataclass(frozen=True)
class Target:
    """A runtime and precision, and how a model is lowered for them.

    `layouts` are the a-STAR layouts that the runtime supports, the best one first (`exporter.core.prune`).
    `passes` are the graph passes in execution order (`exporter.core.lower.pipeline`). `quantization` is the
    scheme applied after them, "" for none (`exporter.core.lower.quantize`). `passes_after` run behind it, when
    padded a-STAR's retention is in standard operators. `largest_top_k` is the most that the runtime's top-k
    returns, None for any number. `least_version` is the first version of the runtime that takes the file, and
    `least_sm` the lowest compute capability of a GPU that does; () for any. `instead` is the target to take on
    an older one, "" where there is none.
    """

    name: str
    runtime: Runtime
    precision: Precision
    layouts: tuple[Layout, ...]
    opset: int
    passes: tuple[str, ...]
    quantization: str = ""
    passes_after: tuple[str, ...] = ()
    largest_top_k: int | None = None
    least_version: tuple[int, ...] = ()
    least_sm: tuple[int, ...] = ()
    instead: str = ""

    @property
    def takes_ranges(self) -> bool:
        """Whether quantization needs activation ranges, measured on images during lowering."""
        return bool(self.quantization) and not self.dynamic

    @property
    def dynamic(self) -> bool:
        """Whether each batch has activation ranges of its own: what an image gives depends on those beside it."""
        return self.quantization == "dynamic"

    @property
    def measures(self) -> bool:
        """Whether lowering measures activations on images: for their ranges, or for what fp16 cannot hold."""
        return self.takes_ranges or "to_fp16" in (*self.passes, *self.passes_after)

    @property
    def reduced(self) -> tuple[Precision, ...]:
        """The precisions below fp32: of linear layers, and bf16 where the rest is converted to it."""
        rest = (Precision.BF16,) if "to_bf16" in self.passes_after else ()
        precisions = (self.precision, *rest)
        return tuple(
            precision for precision in precisions if precision != Precision.FP32
        )

    def layout(self, wanted: Layout | str | None) -> Layout:
        """Return the wanted a-STAR layout, by default the best; ModelError if the runtime does not support it."""
        if wanted is None:
            return self.layouts[0]
        wanted = Layout.named(wanted)
        if wanted not in self.layouts:
            raise ModelError(
                f"target {self.name}",
                f"layout {wanted}",
                f"one of {', '.join(self.layouts)}",
            )
        return wanted

    def check_top_k(self, most: int) -> None:
        """Raise ModelError if a top-k of the model returns `most` patches, and the runtime's returns fewer."""
        if self.largest_top_k is not None and most > self.largest_top_k:
            expected = f"at most {self.largest_top_k}, the runtime's limit"
            raise ModelError(
                f"target {self.name}", f"a top-k of {most} patches", expected
            )

    def file_name(self, model: str, method: str) -> str:
        """Return the file name of a model pruned by `method` ("dense" for the unpruned model)."""
        return f"{model}.{method}.{self.name}.onnx"


EXPANDED = (
    "expand_attention",
    "expand_factors",
    "expand_pairing",
    "expand_merging",
    "expand_selection",
    "expand_packing",
)
# Attention as MatMul, Softmax, MatMul, for the runtime to fuse.
IN_PARTS = ("name_decisions", *EXPANDED)
# Attention as one node, with more passes.
FUSED = (
    "name_decisions",
    "fuse_attention",
    "fold_attention_biases",
    "shorten_scores",
    "rank_prefix",
    "select_early",
)
IN_ONE_NODE = (*FUSED, "spread_masks", *EXPANDED)


ONNXRUNTIME = Target(
    name="onnxruntime-fp32",
    runtime=ONNXRUNTIME_CPU,
    precision=Precision.FP32,
    layouts=(Layout.PACKED, Layout.SHRINKING, Layout.PADDED),
    opset=23,  # the first with an Attention operator
    passes=(*IN_ONE_NODE, "sort_once", "choose_unsorted", "linear_as_gemm"),
)

ONNXRUNTIME_FP16 = replace(
    ONNXRUNTIME,
    name="onnxruntime-fp16",
    precision=Precision.FP16,
    passes=(*ONNXRUNTIME.passes, "to_fp16"),
)

ONNXRUNTIME_INT8 = replace(
    ONNXRUNTIME,
    name="onnxruntime-int8",
    precision=Precision.INT8,
    # Linear layers are MatMul, not Gemm, so that query, key and value share the quantized tokens.
    passes=(
        *IN_ONE_NODE,
        "sort_once",
        "choose_unsorted",
        "patches_as_linear",
        "split_gemm",
    ),
    quantization="dynamic",
)

# For ONNX Runtime before 1.23, the first that reads opset 23.
ONNXRUNTIME_OPSET17 = replace(
    ONNXRUNTIME,
    name="onnxruntime-opset17-fp32",
    opset=18,
    passes=(*IN_PARTS, "sort_once", "choose_unsorted", "opset_17"),
)


# OpenVINO decomposes the attention node and fuses it again. Its GatherND is slow, and its top-k needs sorted = 1.
OPENVINO = Target(
    name="openvino-fp32",
    runtime=OPENVINO_CPU,
    precision=Precision.FP32,
    layouts=(Layout.PADDED,),
    opset=23,
    passes=(*FUSED, "spread_masks", "turn_square_contexts", *EXPANDED, "flat_gathers"),
)

# OpenVINO's own conversion to bf16 at load time would convert the scores too.
OPENVINO_BF16 = replace(
    OPENVINO,
    name="openvino-bf16",
    precision=Precision.BF16,
    passes=(*OPENVINO.passes, "to_bf16"),
)

OPENVINO_INT8 = replace(
    OPENVINO,
    name="openvino-int8",
    precision=Precision.INT8,
    # Attention is in parts, for pairs between them; their masks need a row for every head, not for every query.
    passes=(
        *FUSED,
        "masks_by_head",
        "split_heads",
        "turn_square_contexts",
        *EXPANDED,
        "flat_gathers",
        "patches_as_linear",
        "split_gemm",
    ),
    quantization="qdq",
)

# The selection in few nodes, since a small model on a GPU pays for launches.
FEW_STEPS = (
    "name_decisions",
    "bare_projections",
    "shorten_scores",
    "rank_prefix",
    "sum_class_rows",
    "expand_attention",
    "expand_factors",
    "count_pairs",
    "expand_merging",
    "expand_selection",
    "expand_packing",
    "sort_once",
    "flat_gathers",
)


# TensorRT's attention fusion needs the pattern MatMul, Softmax, MatMul, and its top-k needs sorted = 1. Its
# parser supports the Attention operator of opset 23 late and only in part. Padded a-STAR needs no plugin and no
# data-dependent shapes.
TENSORRT = Target(
    name="tensorrt-fp32",
    runtime=TRT,
    precision=Precision.FP32,
    layouts=(Layout.PADDED, Layout.SHRINKING),
    opset=20,
    passes=FEW_STEPS,
    largest_top_k=3840,  # ITopKLayer's limit
    least_version=(10,),
)

# TensorRT 11 takes precision from the graph alone, as TensorRT 10 does with strong typing.
TENSORRT_FP16 = replace(
    TENSORRT,
    name="tensorrt-fp16",
    precision=Precision.FP16,
    passes=(*FEW_STEPS, "to_fp16"),
)

# The rest of the graph is fp16: attention is fused in half precision only, and GELU and sums are memory-bound.
TENSORRT_INT8 = replace(
    TENSORRT,
    name="tensorrt-int8",
    precision=Precision.INT8,
    passes=(*FEW_STEPS, "split_gemm"),
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

# What it leaves to the CPU costs a copy there and back: Attention, scatters, int64.
WEB = Target(
    name="web-fp32",
    runtime=ONNXRUNTIME_WEBGPU,
    precision=Precision.FP32,
    layouts=(Layout.PADDED,),
    opset=20,
    passes=FEW_STEPS,
    passes_after=(
        "limits_as_where",
        "round_as_floor",
        "logic_as_sums",
        "integers_as_floats",
    ),
)

WEB_FP16 = replace(
    WEB, name="web-fp16", precision=Precision.FP16, passes=(*WEB.passes, "to_fp16")
)


TARGETS = {
    target.name: target
    for target in (
        ONNXRUNTIME,
        ONNXRUNTIME_FP16,
        ONNXRUNTIME_INT8,
        ONNXRUNTIME_OPSET17,
        OPENVINO,
        OPENVINO_BF16,
        OPENVINO_INT8,
        TENSORRT,
        TENSORRT_FP16,
        TENSORRT_INT8,
        TENSORRT_FP8,
        WEB,
        WEB_FP16,
    )
}


def target_named(name: str) -> Target:
    """Return the target of that name; ModelError lists the known names."""
    if name not in TARGETS:
        raise ModelError("target", repr(name), f"one of {', '.join(TARGETS)}")
    return TARGETS[name]


def instrumented_roles(target: Target, *, adaptive: bool) -> tuple[str, ...]:
    """Return the variants that are written beside a pruned model, for `check` and for `bench` on engines.

    The sliced one has fixed counts; those of a-STAR, which is `adaptive`, depend on the image.
    """
    sliced = target.runtime.engines and not adaptive
    return (*INSTRUMENTED, SLICED) if sliced else INSTRUMENTED
