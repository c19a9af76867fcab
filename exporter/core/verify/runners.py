"""The runner of a lowered model on ONNX Runtime or OpenVINO; `exporter.engines` has that of TensorRT."""

from pathlib import Path

from exporter.core.base.targets import (
    ONNXRUNTIME_TENSORRT,
    OPENVINO_CPU,
    Runtime,
    Target,
)
from exporter.core.verify.onnxruntime_runner import OnnxRuntimeRunner, shape_options
from exporter.core.verify.openvino_runner import OpenVinoRunner
from exporter.core.verify.runner import Runner


def runner_of(
    model: Path | bytes, runtime: Runtime, threads: int = 0, *, name: str = ""
) -> Runner:
    """Create a runner for a lowered model, a file or its bytes; `name` is by default the file's."""
    if runtime == OPENVINO_CPU:
        return OpenVinoRunner(model, name=name, threads=threads)
    shapes = {}
    if runtime == ONNXRUNTIME_TENSORRT and isinstance(model, Path):
        shapes = shape_options(model)
    return OnnxRuntimeRunner(
        model,
        name=name,
        providers=runtime.providers,
        threads=threads,
        tensorrt=shapes,
    )


def runner_here(
    model: Path | bytes, target: Target, threads: int = 0, *, name: str = ""
) -> Runner:
    """Create a runner for a lowered model on the export machine's CPU: on its target's runtime, or its stand-in.

    A file for TensorRT has only standard operators, and no engine yet.
    """
    runtime = target.runtime.stand_in or target.runtime
    return runner_of(model, runtime, threads, name=name)
