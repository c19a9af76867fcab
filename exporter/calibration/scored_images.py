"""Compute the scores of planned images, in order; the processes of a launcher share the work."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import islice

import numpy as np
import torch

from exporter.calibration.draw import PlannedImage
from exporter.calibration.importance import ImageScores, acs_of_images, scores_of_image
from exporter.calibration.settings import CalibrationSettings
from exporter.data.pixels import LoadedImage, SkippedImage, normalise, stream
from exporter.models.base import PrunableViT
from exporter.processes import processes

__all__ = ["Scored", "scored_chunks"]

ACS_CHUNK = 8  # images per forward pass without relevance; fixed, since it changes rounding

Scored = tuple[PlannedImage, ImageScores | SkippedImage]


def scored_chunks(
    vit: PrunableViT, planned: Sequence[PlannedImage], classes: int, settings: CalibrationSettings
) -> Iterator[list[Scored]]:
    """Yield the planned images with their scores, chunk by chunk, in order; for some, why they cannot be read.

    With relevance a chunk is one image, else ACS_CHUNK of them. Of every `count` chunks, one for each process, each
    process computes its own, and all yield all of them.
    """
    crew, size = processes(), 1 if settings.relevance else ACS_CHUNK
    chunks = [planned[start : start + size] for start in range(0, len(planned), size)]
    files = (item.file for chunk in crew.own(chunks) for item in chunk)
    with closing(stream(files, vit.spec.preprocessing)) as loaded:
        for start in range(0, len(chunks), crew.count):
            turn = chunks[start : start + crew.count]
            mine = turn[crew.index] if crew.index < len(turn) else ()
            yield from crew.gathered(
                _with_scores(vit, mine, list(islice(loaded, len(mine))), classes, settings)
            )


def _with_scores(
    vit: PrunableViT,
    planned: Sequence[PlannedImage],
    loaded: Sequence[LoadedImage | SkippedImage],
    classes: int,
    settings: CalibrationSettings,
) -> list[Scored]:
    good = [image for image in loaded if isinstance(image, LoadedImage)]
    scores = iter(_scored(vit, planned[0], good, classes, settings) if good else ())
    pairs = zip(planned, loaded, strict=True)
    return [(item, image if isinstance(image, SkippedImage) else next(scores)) for item, image in pairs]


def _scored(
    vit: PrunableViT,
    first: PlannedImage,
    good: Sequence[LoadedImage],
    classes: int,
    settings: CalibrationSettings,
) -> list[ImageScores]:
    pixels = np.stack([image.pixels for image in good])
    inputs = torch.from_numpy(normalise(pixels, vit.spec.preprocessing)).to(vit.device)
    if settings.relevance:
        return [scores_of_image(vit, inputs, classes if first.rounds else 0, settings.normalize)]
    return acs_of_images(vit, inputs)
