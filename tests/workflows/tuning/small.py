"""A search that is small enough for a test: a tiny ViT, six images a half, and a few candidates."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from exporter.data.images import ImageFile, ImageFolder
from exporter.evaluation.accuracy import Predictions
from exporter.evaluation.benchmark import Throughput
from exporter.targets import ONNXRUNTIME, ONNXRUNTIME_INT8
from exporter.vocabulary import Method
from exporter.workflows.recipe import Recipe
from exporter.workflows.tuning import inputs, tune
from exporter.workflows.tuning.axes import AXES, Candidate, candidates
from exporter.workflows.tuning.bench import Timed
from exporter.workflows.tuning.settings import TuneSettings
from tests.commands import Workplace

__all__ = [
    "FEW",
    "TARGETS",
    "FakeBench",
    "few_candidates",
    "numbered",
    "recipe_for",
    "settings",
    "timed_at",
    "with_few",
]

TARGETS = (ONNXRUNTIME, ONNXRUNTIME_INT8)

FEW = {**AXES, "scorer": ("pairs", "fused"), "alpha": (None,), "mac_reduction": (0.2, 0.4)}


def few_candidates(axes: Any = FEW, trained: Any = ()) -> tuple[Candidate, ...]:
    """ToMe, STAR and a-STAR at two shares, and what is pinned."""
    few = {**FEW, **{name: values for name, values in axes.items() if values != AXES[name]}}
    found = candidates(few, trained)
    return tuple(each for each in found if each.method != Method.STAR or each.reduce == "drop")


def with_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let searches have few candidates, on two targets."""
    monkeypatch.setattr(inputs, "candidates", few_candidates)
    monkeypatch.setattr(tune, "targets_here", lambda _: TARGETS)


def recipe_for(workplace: Workplace, **changes: Any) -> Recipe:
    return workplace.recipe(**{"max_images": 4, "gamma": 2, "batch": 2, "rounds": 5, "threads": 1, **changes})


def settings(**changes: Any) -> TuneSettings:
    values: dict[str, Any] = {"max_drop": 40.0, "runtime": "onnxruntime", "minutes": 5.0, "finalists": 2}
    return TuneSettings(**{**values, **changes})


def numbered(total: int, first: int = 0) -> ImageFolder:
    """Images that do not exist; their names are their numbers."""
    files = tuple(ImageFile(Path(f"x/{at}.png"), 1) for at in range(first, first + total))
    return ImageFolder(Path("x"), files)


def timed_at(ms: float) -> Timed:
    """A model that takes so long for an image."""
    return Timed(Throughput(1, 1000 / ms, ms, ms, (ms, ms), (ms,) * 5), 5)


@dataclass
class FakeBench:
    """All images are of class 1; a candidate has the share of `tops` right, 0.9 where it has none.

    A model takes 10 ms less the share that it saves, INT8 half of it; a measurement takes a second.
    """

    tops: dict[Candidate, float] = field(default_factory=dict)
    seen: list[str] = field(default_factory=list)
    spent_s: int = 0

    @property
    def ledger(self) -> "FakeBench":
        return self

    def schedule(self, candidate: Candidate) -> Any:
        return None if candidate.mac_reduction == 0.95 else candidate

    def macs(self, candidate: Candidate) -> float:
        return 1e9 * (1 - (candidate.mac_reduction or 0.0))

    def predicted(self, candidate: Candidate, images: ImageFolder, part: str) -> Predictions:
        name = f"{candidate.label}: {part}"
        self.spent_s += name not in self.seen
        self.seen.append(name)
        places = np.array([int(file.path.stem) for file in images.files])
        share = self.tops.get(candidate.on(""), 0.9)
        right = places * 7919 % 1000 < 1000 * share
        return Predictions(right.astype(np.int64)[:, None], np.ones(len(places), np.int64))

    def speeds(self, some: Any, targets: Any) -> dict[Candidate, Timed]:
        placed = [each.on(target.name) for each in some for target in targets]
        ms = {
            each: 10 * (1 - (each.mac_reduction or 0)) * (0.5 if "int8" in each.target else 1)
            for each in placed
        }
        return {each: timed_at(ms[each]) for each in placed}
