"""The running sums of a calibration, and the file from which an interrupted one continues."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from exporter.calibration.importance import ImageScores
from exporter.errors import ArtefactError, reason_of
from exporter.files import written_beside
from exporter.formats.canonical_json import to_json
from exporter.records import ModelSpec

__all__ = ["Sums", "load_sums", "save_sums"]


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums over the first `done` planned images, in their order; immutable.

    `inter` is [rounds, layers, patches], `counted` [rounds, layers] the number of images in each sum,
    `halves` [2, layers, patches] the sums over the images of either half, each once, and `acs` [layers].
    `counts` holds, in this order: done, images used, skipped, images in `acs`, empty rows. `skipped` says why an
    image could not be read, by its name.
    """

    inter: NDArray[np.float64]
    counted: NDArray[np.int64]
    halves: NDArray[np.float64]
    acs: NDArray[np.float64]
    counts: NDArray[np.int64]
    skipped: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def zero(spec: ModelSpec, rounds: int) -> "Sums":
        """Return the sums before the first image."""
        return Sums(
            inter=np.zeros((rounds, spec.depth, spec.num_patches)),
            counted=np.zeros((rounds, spec.depth), np.int64),
            halves=np.zeros((2, spec.depth, spec.num_patches)),
            acs=np.zeros(spec.depth),
            counts=np.zeros(5, np.int64),
        )

    @property
    def done(self) -> int:
        """Number of planned images done, used or skipped."""
        return int(self.counts[0])

    def plus(self, scores: ImageScores, rounds: tuple[int, ...], *, in_acs: bool, half: int = 0) -> "Sums":
        """Return the sums with one more image: in these rounds, in its half, and with `in_acs` in ACS."""
        inter, counted, halves = self.inter, self.counted, self.halves
        if rounds and scores.inter is not None and scores.counted is not None:
            inter, counted, halves = inter.copy(), counted.copy(), halves.copy()
            halves[half] += scores.inter
            for index in rounds:
                inter[index] += scores.inter
                counted[index] += scores.counted
        return replace(
            self,
            inter=inter,
            counted=counted,
            halves=halves,
            acs=self.acs + scores.acs if in_acs else self.acs,
            counts=self.counts + np.array([1, 1, 0, int(in_acs), scores.empty_rows]),
        )

    def plus_skipped(self, name: str, reason: str) -> "Sums":
        """Return the sums with one more image, which could not be read for this reason."""
        counts = self.counts + np.array([1, 0, 1, 0, 0])
        return replace(self, counts=counts, skipped={**self.skipped, name: reason})

    def mean_acs(self) -> NDArray[np.float64]:
        """Return the mean over images, [layers]."""
        return self.acs / max(1, int(self.counts[3]))

    def mean_inter(self) -> NDArray[np.float64]:
        """Return the mean over each round's images, then over rounds, [layers, patches].

        A layer for which no image had a score gets equal scores for all patches.
        """
        rounds = self.inter / np.maximum(self.counted, 1)[..., None]
        filled = (self.counted > 0).sum(0)
        mean = rounds.sum(0) / np.maximum(filled, 1)[:, None]
        mean[filled == 0] = 1 / mean.shape[1]
        return mean


def save_sums(sums: Sums, path: Path, key: str) -> None:
    """Write the sums atomically; `key` identifies the model, images and settings of the job.

    Raises:
        OutputError: The place cannot be written.
    """
    arrays = {name: value for name, value in vars(sums).items() if name != "skipped"}
    content = save(arrays, metadata={"key": to_json(key), "skipped": to_json(sums.skipped)})
    with written_beside(path) as partial:
        partial.write_bytes(content)


def load_sums(path: Path, key: str) -> Sums | None:
    """Read the sums of the job `key`; None where there is no file, or that of another job, to be replaced.

    Raises:
        ArtefactError: The file holds no sums: it is another program's.
    """
    if not os.path.lexists(path):
        return None
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            if metadata["key"] != to_json(key):
                return None
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (not a dict)
            return Sums(**arrays, skipped=json.loads(metadata["skipped"]))
    except (OSError, SafetensorError, TypeError, ValueError, KeyError) as error:
        expected = "the sums of an unfinished calibration, which would be replaced"
        raise ArtefactError(str(path), reason_of(error), expected, "move it away") from None
