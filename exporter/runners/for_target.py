"""The runner of a target's runtime, and whether this machine has it."""

from pathlib import Path

from exporter.errors import MissingDependencyError, UserError
from exporter.runners.base import Runner
from exporter.runners.onnxruntime_runner import OnnxRuntimeRunner
from exporter.runners.openvino_runner import PRECISIONS, OpenVinoRunner, openvino_precisions
from exporter.targets import Target

__all__ = ["runner_for", "why_not"]


def runner_for(target: Target, model: Path | bytes, *, name: str = "", threads: int = 0) -> Runner:
    """A model lowered for `target`, from a file or from memory, on the CPU.

    A file for TensorRT is made of standard operators. Before it becomes an engine, ONNX Runtime stands in.

    Raises:
        UserError: No runner is made for the target's runtime.
    """
    if target.runtime in ("onnxruntime", "tensorrt"):
        return OnnxRuntimeRunner(model, name=name, threads=threads)
    if target.runtime == "openvino":
        # INT8 is in the file, and the rest of such a file is fp32.
        precision = target.precision if target.precision in PRECISIONS else "fp32"
        return OpenVinoRunner(model, name=name, precision=precision, threads=threads)
    raise UserError(target.name, f"runtime {target.runtime}", "one of onnxruntime, openvino, tensorrt")


def why_not(target: Target) -> str:
    """Why this machine cannot run what is lowered for `target`; "" where it can."""
    if target.runtime == "tensorrt":
        return "its engines are built and measured where the GPU is: star-export build, star-export bench"
    if target.runtime != "openvino":
        return ""
    try:
        precisions = openvino_precisions()
    except MissingDependencyError as error:
        return error.hint
    return "" if target.precision in precisions else f"this CPU has no {target.precision} instructions"
