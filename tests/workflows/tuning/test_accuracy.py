"""Stages double the images, leave out what is beaten, and stop where the time is spent."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from exporter.data.images import ImageFile, ImageFolder
from exporter.vocabulary import Method
from exporter.workflows.tuning.accuracy import narrowed, right
from exporter.workflows.tuning.axes import Candidate
from exporter.workflows.tuning.bench import DENSE

WAY = Candidate(Method.TOME, "pairs", "merge-weighted", None, 0.4)
# The share of images that each candidate has right; it is also the only thing its schedule says.
SHARES = {WAY: 0.89, replace(WAY, mac_reduction=0.6): 0.5, replace(WAY, mac_reduction=0.2): 0.895}


@dataclass
class Spent:
    spent_s: float = 0.0


@dataclass
class FakeBench:
    """Class 1 for the images that are right, 0 for the others; all images are of class 1."""

    ledger: Spent = field(default_factory=Spent)
    seen: list[str] = field(default_factory=list)

    def macs(self, share: Any) -> float:
        return float(share)

    def labels(self, files: Any, part: str) -> np.ndarray:
        return np.ones(len(files), np.int64)

    def reference(self, share: Any) -> Any:
        return 0.9 if share is None else share

    def predicted(self, name: str, files: Any, part: str, model: Any) -> np.ndarray:
        self.seen.append(f"{name} {part}")
        self.ledger.spent_s += 1
        places = np.array([int(file.path.stem) for file in files])
        return ((places * 7919 % 1000) < 1000 * model()).astype(np.int64)


def search(total: int) -> ImageFolder:
    return ImageFolder(Path("x"), tuple(ImageFile(Path(f"x/{at}.png"), 1) for at in range(total)))


def run(bench: FakeBench, total: int, budget_s: float = 1e9) -> Any:
    shown: list[Any] = []
    answers, stages = narrowed(
        bench,  # type: ignore[arg-type]
        SHARES,  # type: ignore[arg-type]
        search(total),
        metric="top1",
        max_drop=0.02,
        budget_s=budget_s,
        advance=lambda done, of: shown.append((done, of)),
    )
    return answers, stages, shown


def test_images_double_until_all_are_seen() -> None:
    bench = FakeBench()
    answers, stages, shown = run(bench, 300)
    assert [stage.images for stage in stages] == [64, 128, 256, 300]
    assert shown == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert len(answers.dense) == 300
    assert all(len(hits) == 300 for hits in answers.hits.values())
    assert f"{DENSE} search 256 to 300" in bench.seen


def test_what_loses_too_much_is_seen_no_more() -> None:
    bench = FakeBench()
    answers, stages, _ = run(bench, 300)
    assert replace(WAY, mac_reduction=0.6) not in answers.hits
    assert (stages[0].before, len(stages[0].left)) == (3, 2)
    assert "tome, pairs, merge-weighted, 60% saved search 64 to 128" not in bench.seen
    assert next(iter(answers.hits)) == WAY


def test_no_stage_begins_when_the_time_is_spent() -> None:
    answers, stages, _ = run(FakeBench(), 300, budget_s=2)
    assert [stage.images for stage in stages] == [64]
    assert len(answers.dense) == 64


def test_agreement_is_with_the_unpruned_model() -> None:
    predicted, labels, dense = np.array([1, 2, 3]), np.array([1, 1, 3]), np.array([2, 2, 3])
    assert right(predicted, labels, dense, "top1").tolist() == [True, False, True]
    assert right(predicted, labels, dense, "agreement").tolist() == [False, True, True]
