"""Measure the cost of calibration in forward passes of the same model. JSON on stdout.

    python benchmarks/calibration_cost.py --model deit_small_patch16_224
    python benchmarks/calibration_cost.py --model vit_small_patch14_dinov2 --num-classes 1000 --only-relevance

Both sides of a ratio are timed interleaved in one process, so that a busy machine slows both; a ratio is the
median over rounds. Processor time, system calls included, varies less than time on a busy machine. Weights are
random: the cost does not depend on them, but the error of float32 does, and it
is larger than with trained weights.
"""

import argparse
import json
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import timm
import torch
from PIL import Image

from exporter.calibration.calibrate import calibrate
from exporter.calibration.importance import acs_of_images, relevance, sweep
from exporter.calibration.record import CalibrationSettings
from exporter.calibration.trace import in_dtype, trace
from exporter.data.images import list_images
from exporter.data.pixels import LoadedImage, normalise, stream
from exporter.models.base import PrunableViT
from exporter.models.registry import adapt

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--model", default="deit_small_patch16_224", help="A timm name; weights are random.")
    parser.add_argument("--num-classes", type=int, help="Classes of the head, for a model without one.")
    parser.add_argument(
        "--only-relevance",
        action="store_true",
        help="Measure the relevance in float64 alone, and its memory.",
    )
    parser.add_argument("--classes", type=int, default=6, help="Classes explained for each image.")
    parser.add_argument("--rounds", type=int, default=7, help="Timed rounds of each comparison.")
    parser.add_argument("--images", type=int, default=32, help="Images for the comparison of ACS alone.")
    parser.add_argument("--threads", type=int, default=0, help="Threads of PyTorch; 0 leaves its default.")
    options = parser.parse_args(arguments)
    if options.threads:
        torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    kwargs = {"num_classes": options.num_classes} if options.num_classes else {}
    vit = adapt(timm.create_model(options.model, **kwargs).eval().requires_grad_(False), options.model)
    images = torch.randn(1, *vit.spec.preprocessing.input_size)
    result: dict[str, Any] = {
        "model": options.model,
        "classes": options.classes,
        "threads": torch.get_num_threads(),
    }
    for dtype in (torch.float64,) if options.only_relevance else (torch.float64, torch.float32):
        name = str(dtype).removeprefix("torch.")
        result[f"relevance_{name}"] = _relevance(in_dtype(vit, dtype), images.to(dtype), options)
        result.setdefault("relevance_peak_bytes", _peak_bytes())
    if not options.only_relevance:
        result["float32_error_by_layer"] = _float32_error(vit, options.classes)
        result["acs_alone"] = _acs(vit, options)
        result["peak_bytes"] = _peak_bytes()
    sys.stdout.write(json.dumps(result, indent=2) + "\n")


def _relevance(vit: PrunableViT, images: torch.Tensor, options: argparse.Namespace) -> dict[str, float]:
    """Measure the relevance of an image (forward pass and sweep) in forward passes of the same dtype, per class."""
    classes = torch.arange(options.classes)[None]

    def forward() -> None:
        with torch.no_grad():
            vit.model(images)

    rounds = _take_turns(forward, lambda: sweep(vit, trace(vit, images), classes), options.rounds)
    return {
        "forwards_per_image_and_class": statistics.median(rounds.ratios) / options.classes,
        "forwards_of_processor_time": statistics.median(rounds.processor_ratios) / options.classes,
        "seconds_per_image": statistics.median(rounds.seconds),
    }


def _float32_error(vit: PrunableViT, classes: int) -> list[float]:
    """Return each layer's largest float32 error over classes and two images, relative to the norm of its scores."""
    images = torch.randn(2, *vit.spec.preprocessing.input_size)
    top = vit.model(images).topk(classes).indices
    double = relevance(vit, images, top)
    single = relevance(vit, images, top, dtype=torch.float32).double()
    error: list[float] = ((single - double).norm(dim=-1) / double.norm(dim=-1)).amax((0, 1)).tolist()
    return error


def _acs(vit: PrunableViT, options: argparse.Namespace) -> dict[str, float]:
    """Compare ACS alone with the plain model on the same files, and both passes without image decoding."""
    with tempfile.TemporaryDirectory() as folder:
        random = np.random.RandomState(0)
        for index in range(options.images):
            pixels = random.randint(0, 256, (256, 256, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(Path(folder, f"{index:04}.jpg"))
        images = list_images(Path(folder))

        def plain() -> None:
            loaded = stream(images.files, vit.spec.preprocessing)
            pixels = [image.pixels for image in loaded if isinstance(image, LoadedImage)]
            with torch.inference_mode():
                for chunk in torch.from_numpy(normalise(np.stack(pixels), vit.spec.preprocessing)).split(8):
                    vit.model(chunk)

        settings = CalibrationSettings(relevance=False)
        whole = _take_turns(plain, lambda: calibrate(vit, images, settings), options.rounds)
    chunk = torch.randn(8, *vit.spec.preprocessing.input_size)

    def forward() -> None:
        with torch.inference_mode():
            vit.model(chunk)

    passes = _take_turns(forward, lambda: acs_of_images(vit, chunk), options.rounds)
    return {
        "ratio_with_decoding": statistics.median(whole.ratios),
        "ratio_of_passes": statistics.median(passes.ratios),
    }


class _Rounds(NamedTuple):
    """Of each round: the ratio of the other's time and processor time to the base's, and the other's seconds."""

    ratios: list[float]
    processor_ratios: list[float]
    seconds: list[float]


def _take_turns(base: Callable[[], object], other: Callable[[], object], rounds: int) -> _Rounds:
    """Time both in turn; a first round warms up."""
    found = _Rounds([], [], [])
    for index in range(rounds + 1):
        times = []
        for function in (base, other):
            start = time.perf_counter(), time.process_time()
            function()
            times.append((time.perf_counter() - start[0], time.process_time() - start[1]))
        if index > 0:
            (base_s, base_processor_s), (other_s, other_processor_s) = times
            found.ratios.append(other_s / base_s)
            found.processor_ratios.append(other_processor_s / base_processor_s)
            found.seconds.append(other_s)
    return found


def _peak_bytes() -> int:
    """Return the peak memory of the process in bytes; Linux reports KiB, macOS bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


if __name__ == "__main__":
    main()
