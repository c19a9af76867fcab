"""Measure the GPU time of the engines of an export folder: the second part of `bench --runtime tensorrt`."""

from pathlib import Path
from typing import Any

import numpy as np

from exporter.evaluation.benchmark.batch_sweep import break_even
from exporter.evaluation.benchmark.engine_runs import (
    EngineFile,
    engine_file,
    measure_engines,
    timer_here,
)
from exporter.evaluation.benchmark.gpu_time import EngineBench
from exporter.evaluation.benchmark.settings import BenchSettings
from exporter.records import Pair
from exporter.schedule.macs import MacCount
from exporter.tensor_names import RAW_IMAGES
from exporter.workflows.export_folder import save_raw_images
from exporter.workflows.progress import Advance

__all__ = ["bench_engines", "engines_of"]

Array = np.ndarray[Any, Any]


def engines_of(files: Pair[Path], settings: BenchSettings) -> Pair[EngineFile]:
    """Return the engines of two files, after checking that they can be measured at every batch.

    Raises:
        ArtefactError: An engine is missing.
        UserError: An engine was not built for one of the batches, or this machine cannot measure GPU time.
    """
    engines = Pair(*(engine_file(path, settings.batches) for path in (files.dense, files.pruned)))
    if settings.gpu_time:
        timer_here(engines.pruned.manifest.built.tensorrt)
    return engines


def bench_engines(
    engines: Pair[EngineFile],
    images: Array,
    macs: Pair[MacCount],
    settings: BenchSettings,
    *,
    plugin: Path | None,
    advance: Advance,
) -> EngineBench:
    """Measure both engines at each batch; write raw images for trtexec into their folder.

    Raises:
        UserError: An engine does not load or run.
    """
    folder, built = engines.pruned.onnx.parent, engines.pruned.manifest.built
    # `compile` wrote raw images for two batch sizes; trtexec needs a file for each batch size.
    missing = [each for each in settings.batches if not (folder / RAW_IMAGES.format(batch=each)).is_file()]
    save_raw_images(images, missing, folder)
    timer, measured = timer_here(built.tensorrt), []
    for each in measure_engines(engines, images, macs, settings, timer=timer, plugin=plugin):
        measured.append(each)
        advance(len(measured), len(settings.batches))
    return EngineBench(timer, built, tuple(measured), break_even(measured))
