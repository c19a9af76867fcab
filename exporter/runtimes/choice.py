"""Which runtime a lowered model runs on: what it was made for, or what the flag `--runtime` says."""

from dataclasses import dataclass
from pathlib import Path

from exporter.errors import MissingDependencyError, RecipeError, UserError
from exporter.runtimes.base import Feed, Runner
from exporter.runtimes.onnxruntime_runner import OnnxRuntimeRunner
from exporter.runtimes.openvino_runner import PRECISIONS, OpenVinoRunner, openvino_precisions
from exporter.runtimes.provider_check import require_provider
from exporter.runtimes.tensorrt.manifest import ENGINES, engine_path
from exporter.runtimes.tensorrt.runner import TensorRtRunner
from exporter.settings import option
from exporter.targets import Target

__all__ = [
    "ONNXRUNTIME_CPU",
    "PROVIDERS",
    "TENSORRT",
    "RunSettings",
    "on_this_cpu",
    "require_runtime",
    "runner_for",
    "runtime_for",
    "why_not",
]

ONNXRUNTIME_CPU = "onnxruntime"
OPENVINO = "openvino"
TENSORRT = "tensorrt"

# ONNX Runtime's execution providers by the runtime that a user names; the CPU stands behind each for shapes alone.
PROVIDERS = {
    ONNXRUNTIME_CPU: ("CPUExecutionProvider",),
    "onnxruntime-cuda": ("CUDAExecutionProvider", "CPUExecutionProvider"),
    "onnxruntime-tensorrt": (
        "TensorrtExecutionProvider",
        "CUDAExecutionProvider",
        "CPUExecutionProvider",
    ),
}
RUNTIMES = (*PROVIDERS, OPENVINO, TENSORRT)


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """The runtime that serves, and what it needs to know."""

    runtime: str | None = option(
        None,
        "What runs the models; by default what they were made for. tensorrt takes the engines that `build` left.",
        RUNTIMES,
    )
    threads: int = option(0, "CPU threads of the runtime; 0 is one a physical core.")
    plugin: Path | None = option(None, "The built CdfRetain library, where an engine does not carry it.")

    def __post_init__(self) -> None:
        """Raise RecipeError for a value that nothing runs on."""
        if self.runtime not in (None, *RUNTIMES):
            raise RecipeError("runtime", str(self.runtime), f"one of {', '.join(RUNTIMES)}")
        if self.threads < 0:
            raise RecipeError("threads", str(self.threads), "at least 0")


def runtime_for(target: Target, settings: RunSettings) -> str:
    """The name of the runtime that a model made for `target` will run on."""
    return settings.runtime or target.runtime


def on_this_cpu(target: Target, threads: int = 0) -> RunSettings:
    """Where a file is checked before it leaves: its own runtime, and for a TensorRT file ONNX Runtime.

    Such a file is made of standard operators, and is no engine yet.
    """
    stand_in = ONNXRUNTIME_CPU if target.runtime == TENSORRT else None
    return RunSettings(runtime=stand_in, threads=threads)


def runner_for(model: Path | bytes, target: Target, settings: RunSettings, *, name: str = "") -> Runner:
    """A runner of a lowered model, or of the engine that was built of it.

    Args:
        model: An ONNX file, or the bytes of one. An engine lies in `engines` beside its file.
        target: What the model was made for.
        settings: The runtime.
        name: What errors and reports call it; the file's name where it is empty.

    Raises:
        UserError: An engine is asked for of a model that is no file.
    """
    runtime = runtime_for(target, settings)
    if runtime == TENSORRT:
        if not isinstance(model, Path):
            raise UserError(name or "engine", "a model in memory", "a file that star-export build has built")
        return TensorRtRunner(engine_path(model.parent / ENGINES, model), model, plugin=settings.plugin)
    if runtime == OPENVINO:
        # INT8 is in the file, and the rest of such a file is fp32.
        precision = target.precision if target.runtime == OPENVINO else "fp32"
        precision = precision if precision in PRECISIONS else "fp32"
        return OpenVinoRunner(model, name=name, precision=precision, threads=settings.threads)
    return OnnxRuntimeRunner(model, name=name, providers=PROVIDERS[runtime], threads=settings.threads)


def require_runtime(model: Path, feed: Feed, target: Target, settings: RunSettings) -> None:
    """Make sure that what was asked for is what runs: ONNX Runtime moves to the CPU without a word.

    Raises:
        UserError: A part of the model runs elsewhere.
    """
    providers = PROVIDERS.get(runtime_for(target, settings), ())
    if providers:
        require_provider(model, providers, feed, settings.threads)


def why_not(target: Target) -> str:
    """Why this machine cannot run what is lowered for `target`; "" where it can."""
    if target.runtime == TENSORRT:
        return "its engines are built and measured where the GPU is: star-export build, star-export bench"
    if target.runtime != OPENVINO:
        return ""
    try:
        precisions = openvino_precisions()
    except MissingDependencyError as error:
        return error.hint
    return "" if target.precision in precisions else f"this CPU has no {target.precision} instructions"
