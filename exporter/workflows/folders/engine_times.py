"""Measure the GPU time of the engines of an export folder: the second part of `bench --runtime tensorrt`."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from exporter.evaluation.benchmark.batch_sweep import BenchSettings, break_even
from exporter.evaluation.benchmark.gpu_time import (
    EngineBench,
    Engines,
    EnginesAtBatch,
    Run,
    engine_files,
    measure_engines,
    timer_here,
)
from exporter.records import Pair
from exporter.runtimes.tensorrt.manifest import ENGINES, engine_path
from exporter.schedule.macs import MacCount
from exporter.tensor_names import IMAGES, RAW_IMAGES, SLICED, variant_path
from exporter.workflows.folders.export_folder import save_raw_images
from exporter.workflows.folders.reference import REFERENCE, read_reference
from exporter.workflows.progress import Advance

__all__ = ["bench_engines", "engines_of"]

Array = np.ndarray[Any, Any]


def engines_of(files: Pair[Path], settings: BenchSettings) -> Engines:
    """Return the engines of two files, after checking that they can be measured at every batch.

    The sliced variant's are there if the selection cost is asked for, and `build` built them.

    Raises:
        ArtefactError: An engine is missing.
        UserError: An engine was not built for one of the batches, or this machine cannot measure GPU time.
    """
    found, batches = [files.dense, files.pruned], settings.batches
    sliced = variant_path(files.pruned, SLICED)
    built = engine_path(sliced.parent / ENGINES, sliced).is_file()
    # It has no engines of one batch size each.
    if settings.selection_cost and built and not settings.one_profile:
        found.append(sliced)
    engines = Engines(*(engine_files(path, batches, one_profile=settings.one_profile) for path in found))
    if settings.gpu_time:
        timer_here(engines.built.tensorrt)
    return engines


def bench_engines(
    engines: Engines,
    images: Array,
    macs: Pair[MacCount],
    settings: BenchSettings,
    *,
    plugin: Path | None,
    advance: Advance,
) -> EngineBench:
    """Measure all engines at each batch; the folder gets the raw images of its own that it lacks.

    Raises:
        UserError: An engine does not load or run.
        OutputError: Raw images cannot be written.
    """
    timer, measured = timer_here(engines.built.tensorrt), list[EnginesAtBatch]()
    with _raw_images(images, settings.batches, engines.folder) as raw:
        for each in measure_engines(engines, macs, Run(images, settings, timer, plugin, raw)):
            measured.append(each)
            advance(len(measured), len(settings.batches))
    return EngineBench(timer, engines.built, tuple(measured), break_even(measured))


@contextmanager
def _raw_images(images: Array, batches: Sequence[int], folder: Path) -> Iterator[Path]:
    """Yield a folder with raw images for trtexec, a file for each batch size.

    It is the export folder where the images are those of its reference. Others would make it refuse itself, so
    they lie in a temporary one.
    """
    reference, is_own = folder / REFERENCE, False
    if reference.is_file():
        own = read_reference(reference)[IMAGES]
        is_own = np.array_equal(images, own)
        # `compile` wrote them for two batch sizes; the commands that are shown read them too.
        missing = [each for each in batches if not (folder / RAW_IMAGES.format(batch=each)).is_file()]
        save_raw_images(own, missing, folder)
    if is_own:
        yield folder
        return
    with TemporaryDirectory(prefix="star-export-") as place:
        save_raw_images(images, batches, Path(place))
        yield Path(place)
