"""`Runner` for ONNX Runtime, on the requested execution providers, and its profiler."""

import json
import logging
import os
import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from exporter.core.base.artefact import artefact_of
from exporter.core.base.errors import ArtefactError, UserError, imported
from exporter.core.base.machine import within_quota
from exporter.core.base.onnx_file import inputs_of, load_onnx
from exporter.core.base.targets import ONNXRUNTIME_OPSET17
from exporter.core.base.tensor_names import Array
from exporter.core.verify.runner import Feed, Runner, TensorInfo

logger = logging.getLogger(__name__)

# The first version that runs a file of an opset: 1.24 reads opset 24, but attends to padding.
_FIRST_READERS = {"17": "1.12", "18": "1.14", "20": "1.17", "23": "1.23", "24": "1.25"}
# Its words for an opset that it does not read.
_UNREAD = re.compile(r"Opset (\d+) is under development")


def refusal(source: str, reason: str, version: str) -> ArtefactError:
    """Return the error for a model that does not load; where the runtime is too old for it, with what to do."""
    unread = _UNREAD.search(reason)
    if unread is None or unread[1] not in _FIRST_READERS:
        return ArtefactError(source, reason, "an ONNX model that loads")
    hint = f"or an export with --target {ONNXRUNTIME_OPSET17.name}"
    expected = f"ONNX Runtime >= {_FIRST_READERS[unread[1]]}"
    return ArtefactError(
        source, f"opset {unread[1]} for ONNX Runtime {version}", expected, hint
    )


def message_of(error: Exception) -> str:
    """Return ONNX Runtime's message in one line, without the two codes before it."""
    text = " ".join(str(error).split())
    return text.split(" : ", maxsplit=2)[-1]


CPU = "CPUExecutionProvider"
TENSORRT = "TensorrtExecutionProvider"

NO_OPTIONS: Mapping[str, str] = MappingProxyType({})

# How to install a missing provider.
PACKAGES = {
    "CUDAExecutionProvider": "pip install 'star-export[onnxruntime-gpu]', CUDA and cuDNN",
    "TensorrtExecutionProvider": "pip install 'star-export[onnxruntime-gpu]', CUDA and TensorRT",
    "OpenVINOExecutionProvider": "pip install onnxruntime-openvino",
    "WebGpuExecutionProvider": "pip install onnxruntime-webgpu, and a driver of Vulkan, Metal or D3D12",
}


def check_available(providers: Sequence[str], available: Sequence[str]) -> None:
    """Raise UserError for the first of the providers that is not available."""
    for provider in providers:
        if provider not in available:
            got = f"ONNX Runtime with {', '.join(available)}"
            raise UserError(
                provider,
                got,
                "a build and drivers that support it",
                PACKAGES.get(provider, ""),
            )


def with_options(
    providers: Sequence[str], tensorrt: Mapping[str, str] = NO_OPTIONS
) -> list[str | tuple[str, dict[str, str]]]:
    """Return the providers with their options: fp32 products stay fp32, for which CUDA's would take TF32."""
    options = {"CUDAExecutionProvider": {"use_tf32": "0"}, TENSORRT: dict(tensorrt)}
    return [
        (provider, options[provider]) if options.get(provider) else provider
        for provider in providers
    ]


# The kernels are tuned for the middle one.
_BATCHES = {"min": 1, "opt": 32, "max": 256}


def shape_options(model: Path) -> dict[str, str]:
    """Return the profile shapes of all inputs of a model or a variant.

    Without them, the provider builds its engine again whenever a batch is larger than all before. It takes none
    unless it gets those of every input.
    """
    loaded = load_onnx(model)
    widths = artefact_of(loaded, str(model)).schedule.widths
    options = {}
    for end, batch in _BATCHES.items():
        shapes = []
        for name, (_, *sizes) in inputs_of(loaded).items():
            width = 1 if end == "min" else widths.get(name, 1)
            shapes.append(f"{name}:{_shape(batch, sizes, width)}")
        options[f"trt_profile_{end}_shapes"] = ",".join(shapes)
    return options


def _shape(batch: int, sizes: list[int | str], width: int) -> str:
    """Return the sizes as the provider reads them; `width` is that of the only dynamic one beside the batch."""
    return "x".join(
        str(size if isinstance(size, int) else width) for size in (batch, *sizes)
    )


_DTYPES = {
    "tensor(float)": "float32",
    "tensor(float16)": "float16",
    "tensor(double)": "float64",
    "tensor(uint8)": "uint8",
    "tensor(int8)": "int8",
    "tensor(int32)": "int32",
    "tensor(int64)": "int64",
    "tensor(bool)": "bool",
}

# ONNX Runtime's exceptions share no base class but Exception.
_ERRORS = (
    "EPFail",
    "Fail",
    "InvalidArgument",
    "InvalidGraph",
    "InvalidProtobuf",
    "NoSuchFile",
    "NotImplemented",
    "RuntimeException",
)


class OnnxRuntimeRunner(Runner):
    """An ONNX model, from a file or from memory. The session exists while the runner is entered."""

    def __init__(
        self,
        model: Path | bytes,
        *,
        name: str = "",
        providers: Sequence[str] = (CPU,),
        threads: int = 0,
        tensorrt: Mapping[str, str] = NO_OPTIONS,
        profile_prefix: Path | None = None,
    ) -> None:
        """Store the settings; the model, a file or the bytes of one, is read when the runner is entered.

        `providers` are those of ONNX Runtime, the preferred one first, and `tensorrt` the options of
        TensorRT's, e.g. those of `shape_options`. `threads` are CPU threads within an operator; 0 is one per
        physical core. `name` is by default the file's. `profile_prefix` is the path prefix of a profile, which
        costs time to write; see `end_profiling`.
        """
        self._source = (
            str(model) if isinstance(model, Path) else name or "an ONNX model in memory"
        )
        super().__init__(
            name or (model.name if isinstance(model, Path) else "onnxruntime")
        )
        self._model, self._providers, self._threads = model, tuple(providers), threads
        self._profile_prefix, self._tensorrt = profile_prefix, dict(tensorrt)
        self._session: Any = None
        self._errors: tuple[type[Exception], ...] = ()

    def end_profiling(self) -> Path:
        """Close the profile that `profile_prefix` requested, and return the path of its JSON file."""
        self._require_active("read")
        return Path(self._session.end_profiling())

    def _activate(self) -> None:
        runtime = imported("onnxruntime", "onnxruntime", "onnxruntime")
        state = runtime.capi.onnxruntime_pybind11_state
        self._errors = tuple(getattr(state, error) for error in _ERRORS)
        if TENSORRT in self._providers:
            # Its provider has no option for TF32; NVIDIA's libraries read this before any setting of a program.
            os.environ["NVIDIA_TF32_OVERRIDE"] = "0"
        check_available(self._providers, runtime.get_available_providers())
        session = self._started(runtime)
        # ONNX Runtime drops a provider whose libraries do not load, and only logs it.
        check_available(self._providers, session.get_providers())
        self._inputs = tuple(self._info(tensor) for tensor in session.get_inputs())
        self._outputs = tuple(self._info(tensor) for tensor in session.get_outputs())
        if not self._outputs:  # ONNX Runtime loads it, and refuses to run it
            raise ArtefactError(
                self._source, "a graph without outputs", "one that returns an answer"
            )
        self._session = session

    def _started(self, runtime: Any) -> Any:
        """Return a session.

        ONNX Runtime 1.31 fuses pairs of FP8 into operators for INT8, and then refuses its own graph: such a file is
        opened once more without this fusion.
        """
        try:
            try:
                return self._opened(runtime)
            except self._errors as error:
                if "float8" in str(error):
                    return self._opened(runtime, fuse_pairs=False)
                raise
        except self._errors as error:
            raise refusal(
                self._source, message_of(error), runtime.__version__
            ) from None

    def _opened(self, runtime: Any, *, fuse_pairs: bool = True) -> Any:
        """Return a session; `fuse_pairs` of quantization into what is between them."""
        options = _options(runtime, self._threads)
        options.add_session_config_entry(
            "session.disable_quant_qdq", str(int(not fuse_pairs))
        )
        if self._profile_prefix is not None:
            options.enable_profiling = True
            options.profile_file_prefix = str(self._profile_prefix)
        model = str(self._model) if isinstance(self._model, Path) else self._model
        providers = with_options(self._providers, self._tensorrt)
        # No fallback: a provider that fails must not be replaced by another one between two runs.
        return runtime.InferenceSession(
            model, options, providers=providers, enable_fallback=0
        )

    def _deactivate(self) -> None:
        self._session = None

    def _run(self, feed: Feed) -> dict[str, Array]:
        names = [info.name for info in self._outputs]
        try:
            return dict(zip(names, self._session.run(names, dict(feed)), strict=True))
        except self._errors as error:
            raise ArtefactError(
                self._source, message_of(error), "a model that accepts these inputs"
            ) from None

    def _info(self, tensor: Any) -> TensorInfo:
        if tensor.type not in _DTYPES:
            got = f"{tensor.name} of type {tensor.type}"
            raise ArtefactError(self._source, got, f"one of {', '.join(_DTYPES)}")
        shape = tuple(
            size if isinstance(size, int) else size or "" for size in tensor.shape
        )
        return TensorInfo(tensor.name, shape, _DTYPES[tensor.type])


def _options(runtime: Any, threads: int) -> Any:
    options = runtime.SessionOptions()
    options.intra_op_num_threads = within_quota(threads)
    options.inter_op_num_threads = 1
    options.execution_mode = runtime.ExecutionMode.ORT_SEQUENTIAL
    options.use_deterministic_compute = True
    options.log_severity_level = (
        4  # fatal ones alone: the text of an error is in the exception
    )
    # Threads that spin after a run would take CPU time from the next runner of an interleaved benchmark.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return options


_SUFFIX = "_kernel_time"


@dataclass(frozen=True)
class Kernel:
    """One node of the optimised graph: its mean time per run, and the execution provider that ran it."""

    name: str
    operator: str
    time_ms: float
    provider: str = ""


def profile(
    model: Path | bytes,
    feed: Feed,
    *,
    runs: int,
    warmup: int = 3,
    threads: int = 0,
    providers: Sequence[str] = (CPU,),
) -> tuple[Kernel, ...]:
    """Run a model in a new session with profiling on, which itself takes time; the warm-up is not measured."""
    with tempfile.TemporaryDirectory() as folder:
        prefix = Path(folder) / "profile"
        runner = OnnxRuntimeRunner(
            model, threads=threads, profile_prefix=prefix, providers=providers
        )
        with runner:
            for _ in range(warmup + runs):
                runner.run(feed)
            trace = json.loads(runner.end_profiling().read_text(encoding="utf-8"))
    return kernels_of(trace, warmup)


def kernels_of(trace: Iterable[dict[str, Any]], warmup: int) -> tuple[Kernel, ...]:
    """Return the kernels of a profile's events in the order of their first run, without the first `warmup` runs."""
    events = [event for event in trace if event.get("ph") == "X"]
    starts = sorted(event["ts"] for event in events if event["name"] == "model_run")
    counted = starts[warmup:]
    total_us: dict[tuple[str, str, str], int] = defaultdict(int)
    for event in events:
        if event["name"].endswith(_SUFFIX) and counted and event["ts"] >= counted[0]:
            name = event["name"].removesuffix(_SUFFIX)
            kernel = event["args"]
            key = (name, kernel["op_name"], kernel.get("provider", ""))
            total_us[key] += event["dur"]
    return tuple(
        Kernel(name, operator, time_us / len(counted) / 1e3, provider)
        for (name, operator, provider), time_us in total_us.items()
    )


# Operators that do a ViT's main work. Others may run on the CPU: ONNX Runtime computes sizes there on purpose.
WORK = frozenset(
    [
        "Attention",
        "BiasGelu",
        "Conv",
        "FastGelu",
        "FusedConv",
        "FusedGemm",
        "FusedMatMul",
        "GatherND",
        "Gelu",
        "Gemm",
        "LayerNormalization",
        "MatMul",
        "MultiHeadAttention",
        "SkipLayerNormalization",
        "Softmax",
        "TopK",
    ]
)


def require_provider(
    model: Path, providers: Sequence[str], feed: Feed, threads: int = 0
) -> None:
    """Run a model on a batch, and check that the first of the providers ran every kernel in WORK."""
    if providers[0] == CPU:
        return
    kernels = profile(
        model, feed, runs=1, warmup=1, threads=threads, providers=providers
    )
    subject = f"{model.name} on {providers[0]}"
    places = Counter(kernel.provider for kernel in kernels)
    logger.info("%s: nodes by place: %s", subject, dict(sorted(places.items())))
    elsewhere = strays(kernels, providers[0])
    if elsewhere:
        got = ", ".join(
            f"{count} {operator} on {where}"
            for (operator, where), count in elsewhere.items()
        )
        raise UserError(subject, got, "all of the model's work there")
    if not any(kernel.provider == providers[0] for kernel in kernels):
        raise UserError(subject, "no kernel of it in the profile", "at least one")


def strays(kernels: Sequence[Kernel], provider: str) -> dict[tuple[str, str], int]:
    """Count the kernels in WORK that ran on another provider, by operator and provider."""
    counts = Counter(
        (kernel.operator, kernel.provider)
        for kernel in kernels
        if kernel.operator in WORK and kernel.provider != provider
    )
    return dict(sorted(counts.items()))
