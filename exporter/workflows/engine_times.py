"""Measure the engines of an export folder in the GPU's own time: `bench --runtime tensorrt`, second part."""

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
    """The engines of two files; what cannot be measured to the end is refused before anything is measured.

    Raises:
        ArtefactError: An engine is not there.
        UserError: It was not built for one of the batches, or nothing here can measure GPU time.
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
    """Measure both, at each batch; leaves raw images for trtexec in their folder.

    Raises:
        UserError: An engine does not load or run.
    """
    folder, built = engines.pruned.onnx.parent, engines.pruned.manifest.built
    # `compile` left those of two batch sizes; trtexec needs a file for each.
    missing = [each for each in settings.batches if not (folder / RAW_IMAGES.format(batch=each)).is_file()]
    save_raw_images(images, missing, folder)
    timer, measured = timer_here(built.tensorrt), []
    for each in measure_engines(engines, images, macs, settings, timer=timer, plugin=plugin):
        measured.append(each)
        advance(len(measured), len(settings.batches))
    return EngineBench(timer, built, tuple(measured), break_even(measured))
