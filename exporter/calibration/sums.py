"""The scores of planned images, in order, their running sums, and how far those of two halves of them agree.

The images are split at random into two disjoint halves, and each half has its own inter-layer scores. A layer's
overlap is the share |A∩B| / |A| of the better half A of the patches by one that is in the better half B by the
other: 1 where both agree, about 0.5 by chance. It understates the calibration, which has twice as many images as
either half (Spearman, 1910, and Brown, 1910, give the correction for correlations; none is applied here).

The processes of a launcher share the work. An interrupted calibration continues from the file of the sums.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from exporter.calibration.importance import ImageScores, acs_of_images, scores_of_image
from exporter.calibration.record import ENOUGH, Doubles
from exporter.calibration.settings import CalibrationSettings, PlannedImage
from exporter.core.base.canonical_json import to_json
from exporter.core.base.errors import reason_of
from exporter.core.base.files import Unfinished
from exporter.core.base.records import ModelSpec, normalise
from exporter.core.vit.protocol import PrunableViT
from exporter.data.pixels import LoadedImage, stream
from exporter.processes import processes

ACS_CHUNK = (
    8  # images per forward pass without relevance; fixed, since it changes rounding
)

Scored = tuple[PlannedImage, ImageScores | str]


def scored_chunks(
    vit: PrunableViT,
    planned: Sequence[PlannedImage],
    classes: int,
    settings: CalibrationSettings,
) -> Iterator[list[Scored]]:
    """Yield the planned images with their scores, chunk by chunk, in order; for some, why they cannot be read.

    With relevance a chunk is one image, else ACS_CHUNK of them. Of every `count` chunks, one for each process, each
    process computes its own, and all yield all of them.
    """
    crew = processes()
    size = 1 if settings.relevance else ACS_CHUNK
    chunks = [planned[start : start + size] for start in range(0, len(planned), size)]
    files = (item.file for chunk in crew.own(chunks) for item in chunk)
    with closing(stream(files, vit.spec.preprocessing)) as loaded:
        for start in range(0, len(chunks), crew.count):
            turn = chunks[start : start + crew.count]
            mine = turn[crew.index] if crew.index < len(turn) else ()
            yield from crew.gathered(
                _with_scores(
                    vit, mine, list(islice(loaded, len(mine))), classes, settings
                )
            )


def _with_scores(
    vit: PrunableViT,
    planned: Sequence[PlannedImage],
    loaded: Sequence[LoadedImage],
    classes: int,
    settings: CalibrationSettings,
) -> list[Scored]:
    readable = [image.pixels for image in loaded if not image.reason]
    scores = iter(_scores(vit, readable, classes, settings))
    return [
        (item, image.reason or next(scores))
        for item, image in zip(planned, loaded, strict=True)
    ]


def _scores(
    vit: PrunableViT,
    readable: Sequence[NDArray[np.uint8]],
    classes: int,
    settings: CalibrationSettings,
) -> list[ImageScores]:
    if not readable:
        return []
    pixels = normalise(np.stack(readable), vit.spec.preprocessing)
    inputs = torch.from_numpy(pixels).to(vit.device)
    if settings.relevance:
        return [scores_of_image(vit, inputs, classes)]
    return acs_of_images(vit, inputs)


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums over the first `done` planned images, in their order; immutable.

    `inter` is [layers, patches], `counted` [layers] the number of images in each of its rows, `halves`
    [2, layers, patches] the sums over the images of either half, and `acs` [layers]. `counts` holds, in this order:
    done, images used, skipped, empty rows. `skipped` says why an image could not be read, by its name.
    """

    inter: Doubles
    counted: NDArray[np.int64]
    halves: Doubles
    acs: Doubles
    counts: NDArray[np.int64]
    skipped: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def zero(spec: ModelSpec) -> "Sums":
        """Return the sums before the first image."""
        return Sums(
            inter=np.zeros((spec.depth, spec.num_patches)),
            counted=np.zeros(spec.depth, np.int64),
            halves=np.zeros((2, spec.depth, spec.num_patches)),
            acs=np.zeros(spec.depth),
            counts=np.zeros(4, np.int64),
        )

    @property
    def done(self) -> int:
        """Number of planned images done, used or skipped."""
        return int(self.counts[0])

    def plus(self, scores: ImageScores, half: int) -> "Sums":
        """Return the sums with one more image, of this half."""
        inter = self.inter
        counted = self.counted
        halves = self.halves
        if scores.inter is not None and scores.counted is not None:
            inter = inter + scores.inter
            counted = counted + scores.counted
            halves = halves.copy()
            halves[half] += scores.inter
        return replace(
            self,
            inter=inter,
            counted=counted,
            halves=halves,
            acs=self.acs + scores.acs,
            counts=self.counts + np.array([1, 1, 0, scores.empty_rows]),
        )

    def plus_skipped(self, name: str, reason: str) -> "Sums":
        """Return the sums with one more image, which could not be read for this reason."""
        counts = self.counts + np.array([1, 0, 1, 0])
        return replace(self, counts=counts, skipped={**self.skipped, name: reason})

    def mean_acs(self) -> Doubles:
        """Return the mean over images, [layers]."""
        return self.acs / max(1, int(self.counts[1]))

    def mean_inter(self) -> Doubles:
        """Return the mean over images, [layers, patches].

        A layer for which no image had a score gets equal scores for all patches.
        """
        mean = self.inter / np.maximum(self.counted, 1)[:, None]
        mean[self.counted == 0] = 1 / mean.shape[1]
        return mean


def save_sums(sums: Sums, path: Path, key: str) -> None:
    """Write the sums atomically; `key` identifies the model, images and settings of the job."""
    arrays = {name: value for name, value in vars(sums).items() if name != "skipped"}
    content = save(
        arrays, metadata={"key": to_json(key), "skipped": to_json(sums.skipped)}
    )
    _file(path, key).replace(lambda partial: partial.write_bytes(content))


def load_sums(path: Path, key: str) -> Sums | None:
    """Read the sums of the job `key`; None where there is no file."""
    return _file(path, key).state(_read)


def _file(path: Path, key: str) -> Unfinished:
    return Unfinished(path, "calibration", to_json(key))


def _read(path: Path) -> tuple[str, Sums]:
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (not a dict)
    except SafetensorError as error:
        raise ValueError(reason_of(error)) from None
    return metadata["key"], Sums(**arrays, skipped=json.loads(metadata["skipped"]))


def better_half_overlap(halves: Doubles) -> Doubles | None:
    """Return each layer's overlap of two tables of scores; None where either half has no score at all.

    They are sums or means over the images of each half, [2, layers, patches]; a row's scale does not matter.
    """
    if not halves.any(axis=(1, 2)).all():
        return None
    patches = halves.shape[-1]
    best = np.argsort(-halves, axis=-1, kind="stable")[..., : (patches + 1) // 2]
    marked = np.zeros(halves.shape, bool)
    np.put_along_axis(marked, best, values=True, axis=-1)
    return marked.all(0).sum(-1) / best.shape[-1]


def is_settled(halves: Doubles) -> bool:
    """Whether the scores of every layer are settled."""
    overlap = better_half_overlap(halves)
    return overlap is not None and bool(overlap.min() >= ENOUGH)
