"""Measure what the loop of `star-export eval` adds to the model: on arrays that are ready, and from JPEG files.

    python benchmarks/eval_loop.py build/deit/deit_small_patch16_224.dense.onnxruntime-fp32.onnx

"of the model": the throughput of the loop over arrays, relative to the model alone. "of what the cores allow":
that of the loop from JPEG files, relative to 1 / (seconds of decoding + seconds of the model) per image, each of
which takes all cores when alone. The four run in turns in every round, so the ratios of a round share a machine.
Both are printed by the clock, and in CPU seconds of the process, which other processes disturb less.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from exporter.artefact import read_lowered
from exporter.data.batches import View, batches_of
from exporter.data.images import ImageFile
from exporter.evaluation.accuracy import predict_each
from exporter.evaluation.benchmark import environment
from exporter.runtimes.base import Runner
from exporter.runtimes.choice import on_this_cpu, runner_for
from exporter.tensor_names import IMAGES

__all__ = ["main"]

Array = np.ndarray[Any, Any]
PARTS = ("model alone", "loop over arrays", "decoding alone", "loop from JPEG")
SIDES = (500, 375)  # a usual photo of ImageNet


@dataclass(frozen=True)
class Subject:
    """A model, its arrays, and the files that they come from."""

    runner: Runner
    view: View
    files: tuple[ImageFile, ...]
    batches: tuple[tuple[Array, Array], ...]
    batch: int

    def model_alone(self) -> None:
        """Run the model over the arrays."""
        for images, _ in self.batches:
            self.runner.run({IMAGES: images})

    def loop_over_arrays(self) -> None:
        """Run the loop over the arrays."""
        predict_each([self.runner], (((images,), labels) for images, labels in self.batches), size=self.batch)

    def decoding_alone(self) -> None:
        """Decode the files."""
        for _ in self._loaded():
            pass

    def loop_from_jpeg(self) -> None:
        """Run the loop from the files."""
        predict_each([self.runner], ((each.views, each.labels) for each in self._loaded()), size=self.batch)

    def _loaded(self) -> Iterator[Any]:
        return batches_of(self.files, [self.view], self.batch, workers=environment().usable_cpus)


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; return 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("model", type=Path, help="An ONNX file of star-export, for a CPU.")
    parser.add_argument("--images", type=int, default=128, help="JPEG files, which are made.")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=0, help="Of the model; 0 is one per physical core.")
    options = parser.parse_args(arguments)
    with _subject(options) as subject:
        steps = (
            subject.model_alone,
            subject.loop_over_arrays,
            subject.decoding_alone,
            subject.loop_from_jpeg,
        )
        # [rounds, steps, 2]: of the clock and of the CPUs; the first round warms up.
        rounds = np.array([[_seconds(step) for step in steps] for _ in range(options.rounds + 1)])[1:]
    print(
        f"{options.model.name}, {len(subject.files)} images, batch {options.batch}, {options.rounds} rounds"
    )
    for name, seconds in zip(PARTS, np.median(rounds[..., 0], axis=0), strict=True):
        print(f"{name}: {len(subject.files) / seconds:.1f} images/s")
    for kind, seconds in zip(("clock", "CPU"), np.moveaxis(rounds, 2, 0), strict=True):
        model, arrays, decoding, jpeg = seconds.T
        _print_ratio(f"of the model, {kind}", model / arrays)
        _print_ratio(f"of what the cores allow, {kind}", (model + decoding) / jpeg)
    return 0


@contextmanager
def _subject(options: argparse.Namespace) -> Iterator[Subject]:
    artefact = read_lowered(options.model).artefact
    view = View(artefact.spec.preprocessing, artefact.input_kind)
    target = artefact.target
    with tempfile.TemporaryDirectory() as place:
        files = tuple(_photo(Path(place), index) for index in range(options.images))
        loaded = tuple((each.views[0], each.labels) for each in batches_of(files, [view], options.batch))
        with runner_for(options.model, target, on_this_cpu(target, options.threads)) as runner:
            yield Subject(runner, view, files, loaded, options.batch)


def _photo(folder: Path, index: int) -> ImageFile:
    """Write coarse noise with a little fine noise, which takes as many bytes as a photo."""
    generator = np.random.default_rng(index)
    coarse = Image.fromarray(generator.integers(0, 256, (15, 20, 3), dtype=np.uint8))
    pixels = np.asarray(coarse.resize(SIDES, Image.Resampling.BICUBIC), np.int16)
    pixels = pixels + generator.integers(-8, 9, pixels.shape, dtype=np.int16)
    path = folder / f"{index:05d}.jpg"
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path, quality=90)
    return ImageFile(path, 0)


def _seconds(step: Callable[[], None]) -> tuple[float, float]:
    clock, cpu = time.perf_counter(), time.process_time()
    step()
    return time.perf_counter() - clock, time.process_time() - cpu


def _print_ratio(what: str, ratios: Array) -> None:
    low, median, high = np.quantile(ratios, (0.25, 0.5, 0.75))
    print(f"{what}: {median:.3f} (quartiles {low:.3f} to {high:.3f})")


if __name__ == "__main__":
    sys.exit(main())
