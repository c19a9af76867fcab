"""A search that is small enough for a test: a tiny ViT, six images a half, and a few candidates."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from exporter.data.images import ImageFile, ImageFolder
from exporter.evaluation.accuracy import Predictions
from exporter.evaluation.benchmark import Throughput
from exporter.targets import ONNXRUNTIME, ONNXRUNTIME_INT8
from exporter.vocabulary import Method
from exporter.workflows import tune
from exporter.workflows.recipes.recipe import Recipe
from exporter.workflows.tuning import inputs
from exporter.workflows.tuning.axes import AXES, Candidate, candidates
from exporter.workflows.tuning.bench import Timed
from exporter.workflows.tuning.budget import Budget
from exporter.workflows.tuning.costs import Estimates
from exporter.workflows.tuning.settings import TuneSettings
from tests.commands import Workplace

__all__ = [
    "FEW",
    "TARGETS",
    "FakeBench",
    "estimates",
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

    A model takes 10 ms less the share that it saves, INT8 half of it. Its clock counts `image_s` for an image whose
    class is asked for, and `model_s` for a model that is lowered. `slow` targets take three times as long.
    """

    tops: dict[Candidate, float] = field(default_factory=dict)
    image_s: float = 0.01
    model_s: float = 0.5
    spent_s: float = 0.0
    slow: tuple[str, ...] = ()
    seen: list[str] = field(default_factory=list)

    @property
    def ledger(self) -> "FakeBench":
        return self

    def schedule(self, candidate: Candidate) -> Any:
        return None if candidate.mac_reduction == 0.95 else candidate

    def macs(self, candidate: Candidate) -> float:
        return 1e9 * (1 - (candidate.mac_reduction or 0.0))

    def predicted(self, candidate: Candidate, images: ImageFolder, part: str) -> Predictions:
        name = f"{candidate.label}: {part}"
        self.spent_s += self.image_s * len(images.files) * (name not in self.seen)
        self.seen.append(name)
        places = np.array([int(file.path.stem) for file in images.files])
        share = self.tops.get(candidate.on(""), 0.9)
        right = places * 7919 % 1000 < 1000 * share
        return Predictions(right.astype(np.int64)[:, None], np.ones(len(places), np.int64))

    def speeds(self, some: Any, targets: Any) -> dict[Candidate, Timed]:
        placed = [each.on(target.name) for each in some for target in targets]
        ms = {
            each: 10
            * (1 - (each.mac_reduction or 0))
            * (0.5 if "int8" in each.target else 1)
            * (3 if each.target in self.slow else 1)
            for each in placed
        }
        lowered = [each.label for each in placed if each.label not in self.seen]
        self.spent_s += self.model_s * len(lowered)
        self.seen += lowered
        return {each: timed_at(ms[each]) for each in placed}


def estimates(bench: FakeBench, *, minutes: float = 60.0, **changes: Any) -> Estimates:
    """A candidate takes the time that the bench says, and a search the minutes."""
    budget = Budget(60 * minutes, 0.0, bench.image_s, bench.model_s, 1, 50, wanted=2, low_precision=False)
    return Estimates(lambda each: bench.macs(each) / 1e8, replace(budget, **changes))
