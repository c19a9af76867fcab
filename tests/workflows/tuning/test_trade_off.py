"""Speed against accuracy, from a sweep and from a search."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from exporter.data.images import ImageFile, ImageFolder
from exporter.workflows.tuning import trade_off
from exporter.workflows.tuning.axes import UNPRUNED, Candidate
from exporter.workflows.tuning.choice import Point
from exporter.workflows.tuning.result import Baseline, Tuned
from exporter.workflows.tuning.trade_off import save_trade_off_chart, trade_off_of_search, trade_off_of_sweep
from tests.evaluation.report.reports import sweep

FILES = tuple(ImageFile(Path(f"{at}.png"), 0) for at in range(10))
CANDIDATES = tuple(Candidate(rho=rho) for rho in (0.9, 0.7, 0.5))


def bench_of(classes: int = 2) -> Any:
    target = SimpleNamespace(name="onnxruntime-int8")
    job = SimpleNamespace(lowering=SimpleNamespace(target=target))
    return SimpleNamespace(job=job, vit=SimpleNamespace(spec=SimpleNamespace(num_classes=classes)))


class Answers:
    """A meter whose candidates miss 0, 1, 3 and 2 of ten images."""

    def __init__(self, bench: Any, images: ImageFolder, metric: str) -> None:
        self.metric = metric

    def right(self, candidate: Candidate) -> np.ndarray:
        assert candidate.target == "onnxruntime-int8"
        wrong = {None: 0, 0.9: 1, 0.7: 3, 0.5: 2}[candidate.rho]
        return np.arange(10) >= wrong


def test_a_sweep_is_measured_on_its_target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trade_off, "AccuracyMeter", Answers)
    found = trade_off_of_sweep(bench_of(), CANDIDATES, sweep(), ImageFolder(Path(), FILES))
    assert found is not None
    assert (found.metric, found.images, found.batch) == ("top1", 10, 8)
    assert [each.label for each in found.points] == ["rho 0.9", "rho 0.7", "rho 0.5"]
    assert [each.loss_points for each in found.points] == pytest.approx([10.0, 30.0, 20.0])
    assert [each.front for each in found.points] == [True, False, True]
    for each in found.points:
        assert each.interval_points is not None
        assert each.interval_points[0] < each.loss_points < each.interval_points[1]


def test_without_labels_it_counts_agreement_and_without_classes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trade_off, "AccuracyMeter", Answers)
    unlabelled = ImageFolder(Path(), tuple(ImageFile(each.path, None) for each in FILES))
    found = trade_off_of_sweep(bench_of(), CANDIDATES, sweep(), unlabelled)
    assert found is not None and found.metric == "agreement"
    assert trade_off_of_sweep(bench_of(classes=0), CANDIDATES, sweep(), unlabelled) is None


def test_a_search_has_its_front_and_every_target(tmp_path: Path) -> None:
    point = Point(UNPRUNED.on("onnxruntime-int8"), 1.0, 0.2, 0.5, 500, 250.0, 4.0, 2.5, 3_000_000)
    slow = Point(CANDIDATES[0], 1.0, 0.4, 0.6, 500, 100.0, 4.0, 1.0, 3_000_000)
    baseline = Baseline("onnxruntime-fp32", 100.0, 1.0, 6_000_000)
    found = Tuned("tiny", "top1", 1.0, None, 0.9, 500, 499, 2, (point, slow), (point,), (baseline,))
    told = trade_off_of_search(found, batch=4)
    assert (told.unpruned, told.images, told.batch) == ({"onnxruntime-fp32": 100.0}, 500, 4)
    assert [(each.label, each.front) for each in told.points] == [
        ("unpruned, onnxruntime-int8", True),
        (CANDIDATES[0].label, False),
    ]
    assert told.points[0].interval_points == pytest.approx((-0.1, 0.5))
    save_trade_off_chart(told, "tiny", tmp_path / "front.png")
    assert (tmp_path / "front.png").read_bytes().startswith(b"\x89PNG")
