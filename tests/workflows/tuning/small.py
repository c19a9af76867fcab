"""A search without a measurement: 800 images, a tiny ViT, and the losses and times of a made-up machine."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from exporter.data.images import ImageFile
from exporter.evaluation.benchmark import Throughput
from exporter.vocabulary import Method
from exporter.workflows.tuning.choice import Timed
from exporter.workflows.tuning.measured import Meter
from exporter.workflows.tuning.ways import Candidate


def many_images(folder: Path) -> Path:
    """Write 800 images of two classes; their names are their numbers."""
    for at in range(800):
        place = folder / f"class_{at % 2}" / f"{at}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (1, 1)).save(place)
    return folder


class Machine:
    """Notes what is measured. The unpruned model has nine of ten images right and takes 10 ms.

    A candidate loses a tenth of the square of its share, where patches are dropped twice and at random ten times as
    much; INT8 loses a point and takes half of the time. Merging takes longer than dropping.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.predicted: list[tuple[str, str]] = []
        self.timed: list[list[str]] = []
        patch.setattr(
            Meter,
            "_predict",
            lambda meter, candidate, part: self.predict(meter.images[part].files, candidate, part),
        )
        patch.setattr(Meter, "_speeds", lambda _, placed: self.speeds(placed))

    def loss(self, candidate: Candidate) -> float:
        share = candidate.mac_reduction or (0.0 if candidate.rho is None else 1 - candidate.rho)
        more = 10 if candidate.scorer == "random" else 2 if candidate.reduce == "drop" else 1
        return 0.1 * more * share**2 + 0.01 * ("int8" in candidate.target)

    def predict(self, files: Sequence[ImageFile], candidate: Candidate, part: str) -> dict[str, Any]:
        self.predicted.append((candidate.label, part))
        place = np.array([int(file.path.stem) for file in files]) * 7919 % 1000 / 1000
        wrong = (place >= 0.9) | (place < self.loss(candidate))
        labels = np.array([file.label for file in files])
        return {"classes": (labels ^ wrong).tolist(), "labels": labels.tolist(), "skipped": {}}

    def speeds(self, placed: Sequence[Candidate]) -> list[dict[str, Any]]:
        self.timed.append([each.label for each in placed])
        found = []
        for each in placed:
            share = (each.mac_reduction or 0.0) * (0.7 if each.method == Method.TOME else 0.9)
            ms = 10 * (1 - share) * (0.5 if "int8" in each.target else 1.0)
            found.append(asdict(Timed(Throughput(2, 2e3 / ms, ms, ms, (ms, ms), (ms,) * 5), 5)))
        return found
