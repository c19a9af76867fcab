"""Choose the runtime of a lowered model: its target's, or the one that `--runtime` names."""

from dataclasses import dataclass
from pathlib import Path

from exporter.errors import MissingDependencyError, RecipeError, UserError
from exporter.files import GivenPath
from exporter.runtimes.base import Feed, Runner
from exporter.runtimes.onnxruntime_runner import (
    OnnxRuntimeRunner,
    require_provider,
    shape_options,
)
from exporter.runtimes.openvino_runner import OpenVinoRunner, openvino_precisions
from exporter.runtimes.tensorrt.manifest import ENGINES, engine_path
from exporter.runtimes.tensorrt.rtx import RtxRunner
from exporter.runtimes.tensorrt.runner import TensorRtRunner
from exporter.runtimes.tensorrt.settings import RTX, TRT
from exporter.settings.fields import Settings, Threads, option
from exporter.targets import ONNXRUNTIME, ONNXRUNTIME_OPSET17, TARGETS, Target

ONNXRUNTIME_CPU = "onnxruntime"
ONNXRUNTIME_TENSORRT = "onnxruntime-tensorrt"
OPENVINO_CPU = "openvino"

# ONNX Runtime's execution providers by runtime name. After a GPU provider, the CPU may run shape operators only.
PROVIDERS = {
    ONNXRUNTIME_CPU: ("CPUExecutionProvider",),
    "onnxruntime-cuda": ("CUDAExecutionProvider", "CPUExecutionProvider"),
    ONNXRUNTIME_TENSORRT: (
        "TensorrtExecutionProvider",
        "CUDAExecutionProvider",
        "CPUExecutionProvider",
    ),
}
RUNTIMES = (*PROVIDERS, OPENVINO_CPU, TRT, RTX)


@dataclass(frozen=True, kw_only=True)
class RunSettings(Settings):
    """The runtime to use, and its settings."""

    runtime: str | None = option(
        None,
        "Runtime of the models; by default their target's. tensorrt and tensorrt-rtx use what `build` wrote.",
        RUNTIMES,
        group="target",
    )
    threads: Threads = option(
        0, "CPU threads of the runtime; 0: one per physical core.", group="measurement"
    )
    plugin: GivenPath = option(
        None,
        "The built CdfRetain library, for an engine that does not contain it.",
        group="advanced",
    )


def runtime_for(target: Target, settings: RunSettings) -> str:
    """Return the name of the runtime for a model made for `target`."""
    return settings.runtime or target.runtime


def on_this_cpu(target: Target, threads: int = 0) -> RunSettings:
    """Return the settings to check a file on the export machine: its own runtime, or ONNX Runtime for TensorRT.

    A file for TensorRT has only standard operators, and no engine yet.
    """
    stand_in = ONNXRUNTIME_CPU if target.runtime == TRT else None
    return RunSettings(runtime=stand_in, threads=threads)


def runner_for(
    model: Path | bytes, target: Target, settings: RunSettings, *, name: str = ""
) -> Runner:
    """Create a runner for a lowered model, a file or its bytes, or for the engine built from it.

    The engine is in the folder `engines` beside the file. `name` is by default the file's.
    """
    runtime = runtime_for(target, settings)
    if settings.plugin is not None and runtime != TRT:
        raise RecipeError(
            "plugin", f"{settings.plugin} for {runtime}", f"--runtime {TRT}", "others take none"
        )
    if runtime in (TRT, RTX) and not isinstance(model, Path):
        raise UserError(
            name or "engine", "a model in memory", "a file that star-export build has built"
        )
    if runtime == TRT and isinstance(model, Path):
        return TensorRtRunner(
            engine_path(model.parent / ENGINES, model), model, plugin=settings.plugin
        )
    if runtime == RTX and isinstance(model, Path):
        return RtxRunner(model.parent / ENGINES, model, name=name)
    if runtime == OPENVINO_CPU:
        return OpenVinoRunner(model, name=name, threads=settings.threads)
    shapes = {}
    if isinstance(model, Path) and runtime == ONNXRUNTIME_TENSORRT:
        shapes = shape_options(model)
    return OnnxRuntimeRunner(
        model,
        name=name,
        providers=PROVIDERS[runtime],
        threads=settings.threads,
        tensorrt=shapes,
    )


def runner_here(
    model: Path | bytes, target: Target, threads: int = 0, *, name: str = ""
) -> Runner:
    """Create a runner for a lowered model on the export machine's CPU, see `on_this_cpu`."""
    return runner_for(model, target, on_this_cpu(target, threads), name=name)


def require_runtime(model: Path, feed: Feed, target: Target, settings: RunSettings) -> None:
    """Check that a model runs on the requested provider, because ONNX Runtime falls back to the CPU silently."""
    providers = PROVIDERS.get(runtime_for(target, settings), ())
    if providers:
        require_provider(model, providers, feed, settings.threads)


def why_not(target: Target) -> str:
    """Return why this machine cannot run models lowered for `target`; "" if it can."""
    if target.runtime == TRT:
        return "its engines are built and measured on the GPU machine: star-export build, star-export bench"
    if target == ONNXRUNTIME_OPSET17:
        return f"for ONNX Runtime before 1.23; later ones read {ONNXRUNTIME.name}, which is the same network"
    if target.runtime != OPENVINO_CPU:
        return ""
    try:
        precisions = openvino_precisions()
    except MissingDependencyError as error:
        return error.hint
    lacking = [each for each in target.reduced if each not in precisions]
    return f"this CPU has no {lacking[0]} instructions" if lacking else ""


def targets_here(runtime: str | None = None, target: str | None = None) -> tuple[Target, ...]:
    """Return the targets that run on this machine, of one runtime or that of one name."""
    asked = (
        each
        for each in TARGETS.values()
        if runtime in (None, each.runtime) and target in (None, each.name)
    )
    reasons = {each: why_not(each) for each in asked}
    here = tuple(each for each, reason in reasons.items() if not reason)
    if not here:
        name, got = ("target", target) if target else ("runtime", runtime)
        reason = next(iter(reasons.values()), "a runtime without this target")
        raise RecipeError(name, f"{got}: {reason}", "one that runs here")
    return here
