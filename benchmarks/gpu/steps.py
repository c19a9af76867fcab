"""The steps of `all.py` in their order: what each shows, and its command."""

import sys
from collections.abc import Iterator

from cifar_steps import cifar_steps
from request import Request, Step

__all__ = ["Request", "Step", "steps"]

HERE = "benchmarks/gpu"


def steps(request: Request) -> tuple[Step, ...]:
    """Return all steps in order. No step needs the network. `check` and `bench` of engines need their `build`."""
    kernel = (sys.executable, "-m", "tests.plugins.gpu_check")
    plugin = (sys.executable, f"{HERE}/build_plugin.py", "--out", str(request.plugin.parents[1]))
    return (
        Step("kernel", "the plugin's kernel: correctness, compute-sanitizer, time", kernel),
        _table("pytorch", "PyTorch, eager and compiled", request),
        _table("onnxruntime", "ONNX Runtime's CUDA provider, IO binding and CUDA graphs", request),
        *_verbs("onnxruntime", "ONNX Runtime's CUDA provider", ("check", "bench"), request),
        *cifar_steps(request),
        Step("plugin", "the plugin's library, for engines of a-STAR whose tokens shrink", plugin),
        _table("tensorrt", "TensorRT engines beside the stock timm model", request),
        *_verbs("engines", "TensorRT engines", ("build", "check", "bench"), request),
        *_verbs("shrinking", "TensorRT engines with the plugin", ("build", "check", "bench"), request),
        *_verbs("tensorrt8", "TensorRT 8.6", ("build", "check", "bench"), request),
    )


def _table(runtime: str, shows: str, request: Request) -> Step:
    words = ("--models", *request.models, "--batches", *map(str, request.batches))
    plugin = ("--plugin", str(request.plugin)) if runtime == "tensorrt" else ()
    out = ("--out", str(request.out / runtime))
    command = (sys.executable, f"{HERE}/table.py", runtime, *words, *plugin, *out)
    return Step(runtime, f"DeiT on {shows}", command)


def _verbs(name: str, shows: str, verbs: tuple[str, ...], request: Request) -> Iterator[Step]:
    """Yield a step for each verb on an export folder."""
    folder, python, lacks = request.folder, sys.executable, "--folder FOLDER"
    runtime = ("--runtime", "onnxruntime-cuda" if name == "onnxruntime" else "tensorrt")
    plugin: tuple[str, ...] = ()
    if name == "tensorrt8":
        folder, python, lacks = request.folder8, request.python8 or "", "--tensorrt8 PYTHON --folder8 FOLDER"
    if name == "shrinking":
        folder, lacks, plugin = request.shrinking, "--shrinking FOLDER", ("--plugin", str(request.plugin))
    batches = ("--batches", ",".join(map(str, request.batches)))
    flags = {"build": batches, "check": runtime, "bench": (*runtime, *batches)}
    for verb in verbs:
        step, line = f"{name}-{verb}", f"`star-export {verb}` of the export folder on {shows}"
        if folder is None or not python:
            yield Step(step, line, lacks=lacks)
        else:
            yield Step(step, line, (python, "-m", "exporter", verb, str(folder), *flags[verb], *plugin))
