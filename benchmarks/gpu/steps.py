"""The steps of `all.py` in their order: what each shows, and its command."""

import json
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from exporter.bundled import CIFAR_VIT

__all__ = ["Request", "Step", "steps"]

HERE = "benchmarks/gpu"


@dataclass(frozen=True)
class Request:
    """What the steps run on; those on something that is None are left out.

    `folder` and `folder8` are export folders, `cifar` has CIFAR-10 as `train/` and `test/`. `python8` is an
    interpreter with TensorRT 8.6.
    """

    out: Path
    models: tuple[str, ...]
    batches: tuple[int, ...]
    folder: Path | None = None
    cifar: Path | None = None
    python8: str | None = None
    folder8: Path | None = None


@dataclass(frozen=True)
class Step:
    """One command, and in a line what it shows. `lacks` says what to give where it cannot run."""

    name: str
    shows: str
    command: tuple[str, ...] = ()
    lacks: str = ""


def steps(request: Request) -> tuple[Step, ...]:
    """Return all steps in order. No step needs the network. `check` and `bench` of engines need their `build`."""
    kernel = (sys.executable, "-m", "tests.plugins.gpu_check")
    return (
        Step("kernel", "the plugin's kernel: correctness, compute-sanitizer, time", kernel),
        _table("pytorch", "PyTorch, eager and compiled", request),
        _table("onnxruntime", "ONNX Runtime's CUDA provider, IO binding and CUDA graphs", request),
        *_verbs("onnxruntime", "ONNX Runtime's CUDA provider", ("check", "bench"), request),
        _training(request),
        _table("tensorrt", "TensorRT engines beside the stock timm model", request),
        *_verbs("engines", "TensorRT engines", ("build", "check", "bench"), request),
        *_verbs("tensorrt8", "TensorRT 8.6", ("build", "check", "bench"), request),
    )


def _table(runtime: str, shows: str, request: Request) -> Step:
    words = ("--models", *request.models, "--batches", *map(str, request.batches))
    out = ("--out", str(request.out / runtime))
    command = (sys.executable, f"{HERE}/table.py", runtime, *words, *out)
    return Step(runtime, f"DeiT on {shows}", command)


def _verbs(name: str, shows: str, verbs: tuple[str, ...], request: Request) -> Iterator[Step]:
    """Yield a step for each verb on an export folder."""
    folder, python, lacks = request.folder, sys.executable, "--folder FOLDER"
    if name == "tensorrt8":
        folder, python, lacks = request.folder8, request.python8 or "", "--tensorrt8 PYTHON --folder8 FOLDER"
    runtime = ("--runtime", "onnxruntime-cuda" if name == "onnxruntime" else "tensorrt")
    batches = ("--batches", ",".join(map(str, request.batches)))
    flags = {"build": batches, "check": runtime, "bench": (*runtime, *batches)}
    for verb in verbs:
        step, line = f"{name}-{verb}", f"`star-export {verb}` of the export folder on {shows}"
        if folder is None or not python:
            yield Step(step, line, lacks=lacks)
        else:
            yield Step(step, line, (python, "-m", "exporter", verb, str(folder), *flags[verb]))


def _training(request: Request) -> Step:
    """Return the training of the bundled CIFAR-10 model, by the command in its record, on the GPU."""
    shows = f"training of {CIFAR_VIT.name} on CIFAR-10"
    if request.cifar is None:
        return Step("cifar", shows, lacks="--cifar FOLDER")
    recorded = shlex.split(json.loads(CIFAR_VIT.record.read_text(encoding="utf-8"))["command"])
    # The last one of a flag counts.
    here = {
        "--images": request.cifar / "train",
        "--held-out": request.cifar / "test",
        "--out": request.out / f"{CIFAR_VIT.name}.safetensors",
        "--device": "cuda",
        "--threads": 0,
        "--workers": 8,
    }
    words = (str(word) for flag in here.items() for word in flag)
    return Step("cifar", shows, (sys.executable, *recorded[1:], *words))
