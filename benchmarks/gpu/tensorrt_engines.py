"""DeiT as TensorRT engines of one batch size each: the GPU's compute time, without copies."""

from pathlib import Path
from typing import Any

from case import STOCK, Case, Timing, model_files

from exporter.errors import UserError
from exporter.evaluation.batch_sweep import BenchSettings
from exporter.evaluation.gpu_time import EngineFile, Run, engine_times
from exporter.runtimes.tensorrt.builder import build_engine, save_engine
from exporter.runtimes.tensorrt.manifest import (
    ENGINES,
    engine_path,
    manifest_of,
    manifest_path,
    read_manifest,
)
from exporter.runtimes.tensorrt.plugin_library import checked_library
from exporter.runtimes.tensorrt.runner import this_machine
from exporter.runtimes.tensorrt.settings import BuildSettings
from exporter.runtimes.tensorrt.tensorrt_api import import_tensorrt
from exporter.runtimes.tensorrt.trtexec import require_program
from exporter.targets import (
    TENSORRT,
    TENSORRT_FP8,
    TENSORRT_FP16,
    TENSORRT_INT8,
    TRT,
    Target,
)
from exporter.vocabulary import Layout, Method
from exporter.workflows.folders.build import check_gpu, check_version
from exporter.workflows.folders.export_folder import save_raw_images

TF32 = "tf32"
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
    "a-STAR 0.7": (Method.A_STAR, 0.7),
    "a-STAR 0.7, shrinking": (Method.A_STAR, 0.7),
}
LAYOUTS = {"a-STAR 0.7, shrinking": Layout.SHRINKING}
# What a mode with the plugin has, and which engines of it hold the plugin.
ROWS = {
    SHRINKING: (("a-STAR 0.7", "a-STAR 0.7, shrinking"), ("a-STAR 0.7, shrinking",)),
}


def require() -> None:
    """Raise UserError where TensorRT or trtexec, which times its engines, is missing."""
    require_program(TRT, import_tensorrt().__version__)


def why_not(mode: str, plugin: Path | None) -> str:
    """Return why this TensorRT, this GPU or the plugin library does not do for a mode; "" if they do."""
    version = import_tensorrt().__version__
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
    trt, folder = import_tensorrt(), case.folder / case.mode.replace(", ", "-")
    plain = tuple(name for name in METHODS if name not in LAYOUTS)
    names, holders = ROWS.get(case.mode, (plain, ()))
    methods = {name: METHODS[name] for name in names}
    files = model_files(
        case.model, methods, TARGETS[case.mode], case.folder / "models", LAYOUTS
    )
    if holders:
        del files[STOCK]
    engines = {
        name: _engine(
            trt, onnx, case, folder / ENGINES, case.plugin if name in holders else None
        )
        for name, onnx in files.items()
    }
    save_raw_images(case.images, (case.batch,), folder)
    settings = BenchSettings(batches=(case.batch,), rounds=case.rounds)
    run = Run(case.images.shape[1:], settings, case.plugin if holders else None)
    return lambda: engine_times(engines, case.batch, run)


def _engine(trt: Any, onnx: Path, case: Case, folder: Path, plugin: Path | None) -> EngineFile:
    path = engine_path(folder, onnx, case.batch)
    if not manifest_path(path).is_file():
        settings = BuildSettings(batches=(case.batch,), tf32=case.mode == TF32, plugin=plugin)
        plan, layers = build_engine(trt, onnx, settings, folder / "timing.cache")
        manifest = manifest_of(plan, onnx, settings, this_machine(trt.__version__))
        save_engine(path, plan, manifest, layers)
    return EngineFile(onnx, path, read_manifest(path))
