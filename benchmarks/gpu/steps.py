"""What `all.py` is asked for, and its steps in their order: what each shows, and its command."""

import json
import shlex
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from exporter.bundled import CIFAR_VIT

STAR_EXPORT = (sys.executable, "-m", "exporter")
HERE = "benchmarks/gpu"

NAME = "cifar196"
# DeiT-Tiny on images of 56 pixels, enlarged from 32: 14 × 14 patches, as at 224 pixels.
RECIPE = "benchmarks/gpu/cifar196.toml"
NETWORK = (
    "--model",
    "deit_tiny_patch16_224",
    "--model-kwargs",
    "img_size=56",
    "patch_size=4",
)
EPOCHS = ("--epochs", "100", "--small-epochs", "60", "--warmup-epochs", "5")
# As in docs/results.md, at equal multiply-adds.
SHARES = ("0.2", "0.35", "0.48", "0.65")
TUNING = (
    "--epochs",
    "1",
    "--batch-size",
    "128",
    "--lr",
    "3e-4",
    "--seeds",
    "1",
    "--workers",
    "8",
    "--amp",
)
LACKS = "--cifar FOLDER"


@dataclass(frozen=True)
class Request:
    """What the steps run on; those on something that is None are left out.

    `folder` and `shrinking` are export folders, the second one of a-STAR in the layout shrinking. `cifar` has
    CIFAR-10 as `train/` and `test/`.
    """

    out: Path
    models: tuple[str, ...]
    batches: tuple[int, ...]
    folder: Path | None = None
    cifar: Path | None = None
    shrinking: Path | None = None

    @property
    def plugin(self) -> Path:
        """Where the step `plugin` leaves the CdfRetain library."""
        return self.out / "plugin" / "build" / "libcdf_retain_plugin.so"


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
    plugin = (
        sys.executable,
        f"{HERE}/build_plugin.py",
        "--out",
        str(request.plugin.parents[1]),
    )
    return (
        Step(
            "kernel",
            "the plugin's kernel: correctness, compute-sanitizer, time",
            kernel,
        ),
        _table("pytorch", "PyTorch, eager and compiled", request),
        _table(
            "onnxruntime",
            "ONNX Runtime's CUDA provider, IO binding and CUDA graphs",
            request,
        ),
        *_verbs(
            "onnxruntime", "ONNX Runtime's CUDA provider", ("check", "bench"), request
        ),
        *_cifar_steps(request),
        Step(
            "plugin",
            "the plugin's library, for engines of a-STAR whose tokens shrink",
            plugin,
        ),
        _table("tensorrt", "TensorRT engines beside the stock timm model", request),
        *_verbs("engines", "TensorRT engines", ("build", "check", "bench"), request),
        *_verbs(
            "shrinking",
            "TensorRT engines with the plugin",
            ("build", "check", "bench"),
            request,
        ),
    )


def _table(runtime: str, shows: str, request: Request) -> Step:
    words = ("--models", *request.models, "--batches", *map(str, request.batches))
    plugin = ("--plugin", str(request.plugin)) if runtime == "tensorrt" else ()
    out = ("--out", str(request.out / runtime))
    command = (sys.executable, f"{HERE}/table.py", runtime, *words, *plugin, *out)
    return Step(runtime, f"DeiT on {shows}", command)


def _verbs(
    name: str, shows: str, verbs: tuple[str, ...], request: Request
) -> Iterator[Step]:
    folder, lacks = request.folder, "--folder FOLDER"
    runtime = ("--runtime", "onnxruntime-cuda" if name == "onnxruntime" else "tensorrt")
    plugin: tuple[str, ...] = ()
    if name == "shrinking":
        folder = request.shrinking
        lacks = "--shrinking FOLDER"
        plugin = ("--plugin", str(request.plugin))
    batches = ("--batches", ",".join(map(str, request.batches)))
    flags = {"build": batches, "check": runtime, "bench": (*runtime, *batches)}
    for verb in verbs:
        step = f"{name}-{verb}"
        line = f"`star-export {verb}` of the export folder on {shows}"
        if folder is None:
            yield Step(step, line, lacks=lacks)
        else:
            command = (*STAR_EXPORT, verb, str(folder), *flags[verb], *plugin)
            yield Step(step, line, command)


def _cifar_steps(request: Request) -> Iterator[Step]:
    """Yield the training of both models, and the calibration, the pruning and the tuning of the second.

    Each continues where it was interrupted: with the next epoch, batch of images or way to prune.
    """
    shows = {
        "cifar": f"training of {CIFAR_VIT.name} on CIFAR-10",
        NAME: "training of DeiT-Tiny with 196 patches on CIFAR-10",
        f"{NAME}-calibrate": "its calibration",
        f"{NAME}-finetune": "its ways to prune, before and after training, at four shares of its multiply-adds",
    }
    commands = {} if request.cifar is None else _commands(request.cifar, request.out)
    for name, what in shows.items():
        yield (
            Step(name, what, commands[name])
            if commands
            else Step(name, what, lacks=LACKS)
        )


def _commands(cifar: Path, out: Path) -> Mapping[str, tuple[str, ...]]:
    weights = out / f"{NAME}.safetensors"
    calibration = out / f"{NAME}.calibration.safetensors"
    trained = ("--checkpoint", str(weights), "--device", "cuda")
    network = (*NETWORK, *_preprocess(), *trained)
    images = ("--images", str(cifar / "train"))
    tested = ("--eval-images", str(cifar / "test"))
    calibrate = (*STAR_EXPORT, "calibrate", "--recipe", RECIPE, *trained, *images)
    calibrated = ("--calibration", str(calibration), "--mac-reductions", *SHARES)
    tuning = (*network, *images, *tested, *calibrated, *TUNING)
    finetune = (sys.executable, "benchmarks/finetuning.py", *tuning)
    return {
        "cifar": _training(cifar, out / f"{CIFAR_VIT.name}.safetensors"),
        NAME: (*_training(cifar, weights), *NETWORK, *EPOCHS),
        f"{NAME}-calibrate": (*calibrate, "--out", str(calibration)),
        f"{NAME}-finetune": (*finetune, "--out", str(out / f"{NAME}-finetune")),
    }


def _training(cifar: Path, out: Path) -> tuple[str, ...]:
    """Return the command in the bundled model's record, on the GPU."""
    recorded = shlex.split(CIFAR_VIT.record["command"])
    # The last one of a flag counts.
    here = {
        "--images": cifar / "train",
        "--held-out": cifar / "test",
        "--out": out,
        "--device": "cuda",
        "--threads": 0,
        "--workers": 8,
    }
    return (
        sys.executable,
        *recorded[1:],
        *(str(word) for flag in here.items() for word in flag),
    )


def _preprocess() -> tuple[str, ...]:
    """Return the flags of the preprocessing that both models are trained with, for the scripts of benchmarks."""
    flags = list[str]()
    for key, value in CIFAR_VIT.preprocessing.items():
        flags += ["--set", f"model.preprocess.{key}={json.dumps(value)}"]
    return tuple(flags)
