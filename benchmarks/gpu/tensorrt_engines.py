"""DeiT as TensorRT engines of one batch size each: the GPU's compute time, without copies."""

from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path

from case import STOCK, Case, Timing, model_files

from exporter.core.base.errors import UserError
from exporter.core.base.targets import (
    RTX,
    TENSORRT,
    TENSORRT_FP8,
    TENSORRT_FP16,
    TENSORRT_INT8,
    TRT,
    Target,
)
from exporter.core.base.vocabulary import Layout, Method
from exporter.engines.builder import build_plan, inspected, save_engine
from exporter.engines.cost_model import estimated_ms, gpu_of
from exporter.engines.gpu import this_machine
from exporter.engines.manifest import (
    ENGINES,
    engine_path,
    manifest_of,
    manifest_path,
    read_manifest,
)
from exporter.engines.plugin_library import checked_library
from exporter.engines.programs import read_programs
from exporter.engines.settings import BuildSettings
from exporter.engines.tool import Tool, tool_of
from exporter.engines.trtexec import require_program
from exporter.measure.batch_sweep import BenchSettings
from exporter.measure.gpu_time import EngineFile, Run, engine_times
from exporter.serve.build import check_gpu, check_version
from exporter.serve.export_folder import save_raw_images

TF32 = "tf32"
# TensorRT for RTX builds for no 9.0; plans for other compute capabilities have the same steps.
PLAN_SM = 80
# With the plugin. TensorRT may refuse to build it, which leaves the other modes as they are.
SHRINKING = "fp16, shrinking"
TARGETS: dict[str, Target] = {
    "fp16": TENSORRT_FP16,
    SHRINKING: TENSORRT_FP16,
    "int8": TENSORRT_INT8,
    "fp8": TENSORRT_FP8,
    TF32: TENSORRT,
    "fp32": TENSORRT,
}
MODES = tuple(TARGETS)
METHODS = {
    "STAR 0.7": (Method.STAR, 0.7),
    "STAR 0.5": (Method.STAR, 0.5),
    "matching 0.9": (Method.MATCHING, 0.9),
    "ToMe 0.7": (Method.TOME, 0.7),
    "a-STAR 0.7": (Method.A_STAR, 0.7),
    "a-STAR 0.7, shrinking": (Method.A_STAR, 0.7),
}
LAYOUTS = {"a-STAR 0.7, shrinking": Layout.SHRINKING}
# What a mode with the plugin has, and which engines of it hold the plugin.
ROWS = {
    SHRINKING: (("a-STAR 0.7", "a-STAR 0.7, shrinking"), ("a-STAR 0.7, shrinking",))
}


def require() -> None:
    """Raise UserError where TensorRT or trtexec, which times its engines, is missing."""
    tool_of(TRT)
    require_program(TRT)


def why_not(mode: str, plugin: Path | None) -> str:
    """Return why this TensorRT, this GPU or the plugin library does not do for a mode; "" if they do."""
    version = tool_of(TRT).version
    if mode in ROWS and plugin is None:
        return "needs the CdfRetain library: --plugin FILE"
    try:
        check_version(TARGETS[mode], version)
        check_gpu(TARGETS[mode], this_machine(version))
        if mode in ROWS and plugin is not None:
            checked_library(plugin, version)
    except UserError as error:
        return str(error)
    return ""


def prepared(case: Case) -> Timing:
    """Build the engines that are missing; the result times all of them by trtexec."""
    # trtexec takes a comma in a path for the end of it.
    tool = tool_of(TRT)
    folder = case.folder / case.mode.replace(", ", "-")
    _, holders = ROWS.get(case.mode, ((), ()))
    engines = {}
    for name, onnx in _files(case).items():
        build = _settings(case, name)
        if name in holders:
            build = replace(build, plugin=case.plugin)
        engines[name] = _engine(tool, onnx, build, folder / ENGINES)
    save_raw_images(case.images, (case.batch,), folder)
    settings = BenchSettings(batches=(case.batch,), rounds=case.rounds)
    run = Run(case.images.shape[1:], settings, case.plugin if holders else None)
    return lambda: engine_times(engines, case.batch, run)


def estimated(case: Case) -> dict[str, float]:
    """Return the milliseconds that the cost model expects, from plans that TensorRT for RTX builds.

    Empty without it, or where its table has no such card. A network that needs the plugin has none.
    """
    gpu = gpu_of(this_machine("").sm)
    is_here = find_spec("tensorrt_rtx") is not None
    if gpu is None or case.mode in ROWS or not is_here:
        return {}
    milliseconds = dict[str, float]()
    # Polygraphy takes TensorRT or TensorRT for RTX for a whole process: here the former.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as apart:
        for name, onnx in _files(case).items():
            settings = replace(_settings(case, name), runtime=RTX.name, sm=(PLAN_SM,))
            times = apart.submit(_estimate, onnx, settings, gpu.sm).result()
            milliseconds[name] = times[gpu.name]
    return milliseconds


def _estimate(onnx: Path, settings: BuildSettings, sm: str) -> dict[str, float]:
    plan = build_plan(tool_of(RTX), onnx, settings, sm=PLAN_SM)
    ((steps, _),) = read_programs(plan)
    return estimated_ms(steps, sm, tf32=settings.tf32)


def _files(case: Case) -> dict[str, Path]:
    """Return the file of each network of a mode."""
    plain = tuple(name for name in METHODS if name not in LAYOUTS)
    names, holders = ROWS.get(case.mode, (plain, ()))
    methods = {name: METHODS[name] for name in names}
    files = model_files(
        case.model, methods, TARGETS[case.mode], case.folder / "models", LAYOUTS
    )
    if holders:
        del files[STOCK]
    return files


def _settings(case: Case, name: str) -> BuildSettings:
    """Return how a network is built; tokens in half precision are compared in TF32, as `build` does."""
    method, _ = METHODS.get(name, ("", 0.0))
    compares = method == Method.MATCHING and bool(TARGETS[case.mode].reduced)
    return BuildSettings(batches=(case.batch,), tf32=compares or case.mode == TF32)


def _engine(
    tool: Tool, onnx: Path, settings: BuildSettings, folder: Path
) -> EngineFile:
    (batch,) = settings.batches
    path = engine_path(folder, onnx, batch)
    if not manifest_path(path).is_file():
        cache = folder / "timing.cache"
        plan = build_plan(tool, onnx, settings, cache=cache)
        manifest = manifest_of(plan, onnx, settings, this_machine(tool.version))
        save_engine(path, plan, manifest, inspected(tool, plan))
    return EngineFile(onnx, path, read_manifest(path))
