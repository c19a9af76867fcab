"""Which runtime a model of an export folder runs on, by the name that the flag `--runtime` takes."""

from dataclasses import dataclass
from pathlib import Path

from exporter.engines.manifest import ENGINES, engine_path
from exporter.errors import RecipeError
from exporter.options import option
from exporter.runners.base import Feed, Runner
from exporter.runners.onnxruntime_runner import OnnxRuntimeRunner
from exporter.runners.provider_check import require_provider
from exporter.runners.tensorrt_runner import TensorRtRunner

__all__ = ["PROVIDERS", "RunSettings", "require_runtime", "runner_for"]

TENSORRT = "tensorrt"

# ONNX Runtime's execution providers by the runtime that a user names; the CPU stands behind each for shapes alone.
PROVIDERS = {
    "onnxruntime": ("CPUExecutionProvider",),
    "onnxruntime-cuda": ("CUDAExecutionProvider", "CPUExecutionProvider"),
    "onnxruntime-tensorrt": (
        "TensorrtExecutionProvider",
        "CUDAExecutionProvider",
        "CPUExecutionProvider",
    ),
}


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """The runtime that serves, and what it needs to know."""

    runtime: str = option(
        "onnxruntime",
        "What runs the models; tensorrt takes the engines that `build` left.",
        (*PROVIDERS, TENSORRT),
    )
    threads: int = option(0, "CPU threads of ONNX Runtime; 0 is one a physical core.")
    plugin: Path | None = option(None, "The built CdfRetain library, where an engine does not carry it.")

    def __post_init__(self) -> None:
        """Raise RecipeError for a value that nothing runs on."""
        if self.runtime not in (*PROVIDERS, TENSORRT):
            raise RecipeError("runtime", self.runtime, f"one of {', '.join((*PROVIDERS, TENSORRT))}")
        if self.threads < 0:
            raise RecipeError("threads", str(self.threads), "at least 0")

    @property
    def builds(self) -> bool:
        """Whether models are built for some batch sizes before they run."""
        return self.runtime == TENSORRT


def runner_for(model: Path, settings: RunSettings) -> Runner:
    """A runner of an ONNX file, or of the engine that was built of it, on the chosen runtime.

    Args:
        model: The ONNX file, in its export folder; its engine lies in `engines` beside it.
        settings: The runtime.
    """
    if settings.builds:
        return TensorRtRunner(engine_path(model.parent / ENGINES, model), model, plugin=settings.plugin)
    return OnnxRuntimeRunner(model, providers=PROVIDERS[settings.runtime], threads=settings.threads)


def require_runtime(model: Path, feed: Feed, settings: RunSettings) -> None:
    """Make sure that what was asked for is what runs: ONNX Runtime moves to the CPU without a word.

    Raises:
        UserError: A part of the model runs elsewhere.
    """
    if not settings.builds:
        require_provider(model, PROVIDERS[settings.runtime], feed, settings.threads)
