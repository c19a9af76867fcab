"""Choose the runtime of a lowered model: its target's, or the one that `--runtime` names."""

from dataclasses import dataclass
from pathlib import Path

from exporter.core.base.errors import MissingDependencyError, RecipeError
from exporter.core.base.files import GivenPath
from exporter.core.base.settings import Settings, Threads, option
from exporter.core.base.shared_settings import plugin_option, threads_option
from exporter.core.base.targets import (
    ONNXRUNTIME,
    ONNXRUNTIME_OPSET17,
    ONNXRUNTIME_WEBGPU,
    OPENVINO_CPU,
    RUNTIMES,
    TARGETS,
    TRT,
    Runtime,
    Target,
)
from exporter.core.verify.onnxruntime_runner import require_provider
from exporter.core.verify.openvino_runner import openvino_precisions
from exporter.core.verify.runner import Feed, Runner
from exporter.core.verify.runners import runner_of
from exporter.engines.runner import TensorRtRunner, engine_here


@dataclass(frozen=True, kw_only=True)
class RunSettings(Settings):
    """The runtime to use, and its settings."""

    runtime: str | None = option(
        None,
        "Runtime of the models; by default their target's. tensorrt and tensorrt-rtx use what `build` wrote.",
        RUNTIMES,
        group="target",
    )
    threads: Threads = threads_option()
    plugin: GivenPath = plugin_option()


def runtime_for(target: Target, settings: RunSettings) -> Runtime:
    """Return the runtime for a model made for `target`."""
    return target.runtime if settings.runtime is None else RUNTIMES[settings.runtime]


def on_this_cpu(target: Target, threads: int = 0) -> RunSettings:
    """Return the settings to check a file on the export machine: its own runtime, or the stand-in.

    A file for TensorRT has only standard operators, and no engine yet.
    """
    stand_in = target.runtime.stand_in
    return RunSettings(runtime=stand_in.name if stand_in else None, threads=threads)


def runner_for(model: Path, target: Target, settings: RunSettings) -> Runner:
    """Create a runner for the file of a lowered model, or for the engine in the folder `engines` beside it."""
    runtime = runtime_for(target, settings)
    if settings.plugin is not None and not runtime.plugins:
        got = f"{settings.plugin} for {runtime.name}"
        raise RecipeError("plugin", got, f"--runtime {TRT.name}", "others take none")
    if runtime.engines:
        engine = engine_here(model, runtime)
        return TensorRtRunner(engine, model, plugin=settings.plugin)
    return runner_of(model, runtime, settings.threads)


def require_runtime(
    model: Path, feed: Feed, target: Target, settings: RunSettings
) -> None:
    """Check that a model runs on the requested provider, because ONNX Runtime falls back to the CPU silently."""
    providers = runtime_for(target, settings).providers
    if providers:
        require_provider(model, providers, feed, settings.threads)


def why_not(target: Target) -> str:
    """Return why this machine cannot run models lowered for `target`; "" if it can."""
    if target.runtime.engines:
        return "its engines are built and measured on the GPU machine: star-export build, star-export bench"
    if target.runtime == ONNXRUNTIME_WEBGPU:
        return f"it is measured where it runs: star-export bench --runtime {ONNXRUNTIME_WEBGPU.name}"
    if target == ONNXRUNTIME_OPSET17:
        return f"for ONNX Runtime before 1.23; later ones read {ONNXRUNTIME.name}, which is the same network"
    if target.runtime != OPENVINO_CPU:
        return ""
    try:
        precisions = openvino_precisions()
    except MissingDependencyError as error:
        return error.hint
    lacking = [precision for precision in target.reduced if precision not in precisions]
    return f"this CPU has no {lacking[0]} instructions" if lacking else ""


def targets_here(
    runtime: str | None = None, target: str | None = None
) -> tuple[Target, ...]:
    """Return the targets that run on this machine, of one runtime or that of one name."""
    reasons = {
        row: why_not(row)
        for row in TARGETS.values()
        if runtime in (None, row.runtime.name) and target in (None, row.name)
    }
    here = tuple(row for row, reason in reasons.items() if not reason)
    if not here:
        name, got = ("target", target) if target else ("runtime", runtime)
        reason = next(iter(reasons.values()), "a runtime without this target")
        raise RecipeError(name, f"{got}: {reason}", "one that runs here")
    return here
