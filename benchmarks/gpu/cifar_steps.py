"""The steps that train on CIFAR-10: the bundled model, and a DeiT-Tiny with 196 patches, which is then pruned."""

import json
import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from request import Request, Step

from exporter.bundled import CIFAR_VIT

__all__ = ["cifar_steps"]

NAME = "cifar196"
# DeiT-Tiny on images of 56 pixels, enlarged from 32: 14 × 14 patches, as at 224 pixels.
RECIPE = "benchmarks/gpu/cifar196.toml"
NETWORK = ("--model", "deit_tiny_patch16_224", "--model-kwargs", "img_size=56", "patch_size=4")
EPOCHS = ("--epochs", "100", "--small-epochs", "60", "--warmup-epochs", "5")
# As in docs/results.md, at equal multiply-adds.
SHARES = ("0.2", "0.35", "0.48", "0.65")
TUNING = ("--epochs", "1", "--batch-size", "128", "--lr", "3e-4", "--seeds", "1", "--workers", "8", "--amp")
LACKS = "--cifar FOLDER"


def cifar_steps(request: Request) -> Iterator[Step]:
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
        yield Step(name, what, commands[name]) if commands else Step(name, what, lacks=LACKS)


def _commands(cifar: Path, out: Path) -> Mapping[str, tuple[str, ...]]:
    """Return the commands by the names of their steps."""
    weights, calibration = out / f"{NAME}.safetensors", out / f"{NAME}.calibration.safetensors"
    trained = ("--checkpoint", str(weights), "--device", "cuda")
    network = (*NETWORK, *_preprocess(), *trained)
    images, tested = ("--images", str(cifar / "train")), ("--eval-images", str(cifar / "test"))
    calibrated = ("--calibration", str(calibration), "--mac-reductions", *SHARES)
    finetune = (sys.executable, "benchmarks/finetuning.py", *network, *images, *tested, *calibrated, *TUNING)
    return {
        "cifar": _training(cifar, out / f"{CIFAR_VIT.name}.safetensors"),
        NAME: (*_training(cifar, weights), *NETWORK, *EPOCHS),
        f"{NAME}-calibrate": (
            *(sys.executable, "-m", "exporter", "calibrate", "--recipe", RECIPE, *trained, *images),
            *("--out", str(calibration)),
        ),
        f"{NAME}-finetune": (*finetune, "--out", str(out / f"{NAME}-finetune")),
    }


def _training(cifar: Path, out: Path) -> tuple[str, ...]:
    """Return the command in the bundled model's record, on the GPU."""
    recorded = shlex.split(json.loads(CIFAR_VIT.record.read_text(encoding="utf-8"))["command"])
    # The last one of a flag counts.
    here = {
        "--images": cifar / "train",
        "--held-out": cifar / "test",
        "--out": out,
        "--device": "cuda",
        "--threads": 0,
        "--workers": 8,
    }
    return (sys.executable, *recorded[1:], *(str(word) for flag in here.items() for word in flag))


def _preprocess() -> tuple[str, ...]:
    """Return the flags of the preprocessing that both models are trained with, for the scripts of benchmarks."""
    values = (f"{key}={str(value).replace(' ', '')}" for key, value in CIFAR_VIT.preprocessing.items())
    return ("--preprocess", *values)
