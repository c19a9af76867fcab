"""Candidates come in turns, as many as there is time for; only fast enough shares stay under a latency."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from exporter.targets import ONNXRUNTIME, ONNXRUNTIME_INT8, OPENVINO
from exporter.workflows.progress import Silent
from exporter.workflows.tuning.accuracy import Answers
from exporter.workflows.tuning.axes import AXES, candidates
from exporter.workflows.tuning.bench import DENSE, Speed
from exporter.workflows.tuning.study import Study
from tests.workflows.tuning.small import few_candidates, settings


@dataclass
class FakeBench:
    """Every model takes 10 ms less the share that it saves; INT8 half of it."""

    def speeds(self, schedules: Any, targets: Any) -> dict[tuple[str, str], Speed]:
        def ms(name: str, target: str) -> float:
            share = 0.0 if name == DENSE else float(name.partition("%")[0].rpartition(" ")[2]) / 100
            return 10 * (1 - share) * (0.5 if "int8" in target else 1)

        return {
            (name, target.name): Speed(1000 / ms(name, target.name), ms(name, target.name), 5)
            for name in schedules
            for target in targets
        }

    def macs(self, schedule: Any) -> float:
        return 1e9


def study_of(**limits: Any) -> Study:
    targets = (ONNXRUNTIME, ONNXRUNTIME_INT8)
    return Study(FakeBench(), None, None, settings(**limits), targets, Silent())  # type: ignore[arg-type]


def test_every_way_has_its_turn_at_each_share_the_middle_ones_first() -> None:
    order = Study._in_turns(candidates())
    assert len(order) == len(candidates())
    shares = list(dict.fromkeys(each.mac_reduction for each in order))
    assert shares[0] == sorted(AXES["mac_reduction"])[len(shares) // 2]
    assert {shares[-1], shares[-2]} == {AXES["mac_reduction"][0], AXES["mac_reduction"][-1]}
    several = len(order) // len(shares)
    assert len({each.mac_reduction for each in order[:several]}) == 1


def test_under_a_latency_shares_around_the_least_fast_enough_stay() -> None:
    found: Any = dict.fromkeys(candidates())
    kept = study_of(max_ms=3.2, max_drop=None)._fast_enough(found)
    shares = sorted({each.mac_reduction for each in kept})
    assert shares == [0.35, 0.4, 0.45, 0.5]
    none = study_of(max_ms=0.1, max_drop=None)._fast_enough(found)
    assert max(each.mac_reduction for each in none) == max(AXES["mac_reduction"])


def test_gains_are_over_fp32_on_onnx_runtime() -> None:
    assert study_of().timed == (ONNXRUNTIME, ONNXRUNTIME_INT8)
    study = Study(FakeBench(), None, None, settings(), (OPENVINO,), Silent())  # type: ignore[arg-type]
    assert study.timed == (OPENVINO, ONNXRUNTIME)


def test_low_precision_is_not_measured_once_something_faster_qualifies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    measured: list[str] = []

    def on_runtime(study: Study, key: Any, schedule: Any, target: Any, images: int) -> np.ndarray:
        measured.append(f"{key.label} {target.name}")
        return np.ones(images, bool)

    monkeypatch.setattr(Study, "_on_runtime", on_runtime)
    study = study_of(max_drop=1.0)
    keys = [each for each in few_candidates() if each.method == "tome"]
    answers = Answers(np.ones(100, bool), {key: np.ones(100, bool) for key in keys})
    schedules: Any = dict.fromkeys(keys, object())
    points = study.points(schedules, answers, study.speeds(schedules, answers))
    assert measured == ["tome, pairs, merge-weighted, 40% saved onnxruntime-int8"]
    assert points[0].candidate.target == "onnxruntime-int8"
    assert points[0].gain == pytest.approx(10 / 3)
    assert [point.candidate.target for point in points[1:]] == ["onnxruntime-fp32"] * 2
