"""DeiT as TensorRT engines of one batch size each: the GPU's compute time, without copies."""

from pathlib import Path
from typing import Any

from case import Case, Timing
from model_files import model_files

from exporter.evaluation.benchmark.engine_files import EngineFile
from exporter.evaluation.benchmark.engine_runs import Run, engine_times, timer_here
from exporter.evaluation.benchmark.settings import BenchSettings
from exporter.runtimes.tensorrt.builder import build_engine
from exporter.runtimes.tensorrt.machine import this_machine
from exporter.runtimes.tensorrt.manifest import ENGINES, engine_path, manifest_path, read_manifest
from exporter.runtimes.tensorrt.saving import save_engine
from exporter.runtimes.tensorrt.settings import BuildSettings
from exporter.runtimes.tensorrt.tensorrt_api import import_tensorrt
from exporter.targets import TENSORRT, TENSORRT_FP16
from exporter.vocabulary import Method
from exporter.workflows.folders.export_folder import save_raw_images

__all__ = ["METHODS", "MODES", "prepared", "require"]

MODES = ("fp16", "tf32", "fp32")
METHODS = {
    "STAR 0.7": (Method.STAR, 0.7),
    "STAR 0.5": (Method.STAR, 0.5),
    "a-STAR 0.7": (Method.A_STAR, 0.7),
}


def require() -> None:
    """Raise UserError where TensorRT or a timer for its engines is missing."""
    timer_here(import_tensorrt().__version__)


def prepared(case: Case) -> Timing:
    """Build the engines that are missing; the result times all of them, by trtexec or by CUDA events.

    Raises:
        UserError: An engine cannot be built.
    """
    trt, folder = import_tensorrt(), case.folder / case.mode
    target = TENSORRT_FP16 if case.mode == "fp16" else TENSORRT
    files = model_files(case.model, METHODS, target, case.folder / "models")
    engines = {name: _engine(trt, onnx, case, folder / ENGINES) for name, onnx in files.items()}
    save_raw_images(case.images, (case.batch,), folder)
    settings = BenchSettings(batches=(case.batch,), rounds=case.rounds)
    run = Run(case.images, settings, timer_here(trt.__version__))
    return lambda: {name: each.compute for name, each in engine_times(engines, case.batch, run).items()}


def _engine(trt: Any, onnx: Path, case: Case, folder: Path) -> EngineFile:
    path = engine_path(folder, onnx, case.batch)
    if not manifest_path(path).is_file():
        settings = BuildSettings(batches=(case.batch,), tf32=case.mode == "tf32")
        engine = build_engine(trt, onnx, settings, folder / "timing.cache")
        save_engine(engine, path, onnx, settings, this_machine(trt.__version__))
    return EngineFile(onnx, path, read_manifest(path))
