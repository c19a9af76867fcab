"""Choices read the search half alone; measurements come in an order, and end in the time, that the minutes say."""

from typing import Any

import pytest

from exporter.errors import RecipeError
from exporter.targets import ONNXRUNTIME, ONNXRUNTIME_INT8, OPENVINO
from exporter.workflows.progress import Silent
from exporter.workflows.tuning.axes import AXES, UNPRUNED, Candidate, candidates, ways
from exporter.workflows.tuning.choice import Point, chosen
from exporter.workflows.tuning.study import Study
from tests.workflows.tuning.small import FakeBench, numbered, settings

TOME = tuple(Candidate(mac_reduction=share) for share in (0.2, 0.4, 0.6))
SHARES = AXES["mac_reduction"]


def study_of(
    bench: FakeBench | None = None, targets: Any = (ONNXRUNTIME, ONNXRUNTIME_INT8), **limits: Any
) -> Study:
    bench = bench or FakeBench()
    return Study(bench, numbered(100), numbered(50, 100), settings(**limits), targets, Silent())  # type: ignore[arg-type]


def points_of(study: Study, every: Any = TOME) -> tuple[Point, ...]:
    return study.measured(every).points


def test_times_are_estimated_by_one_of_each_way_on_the_fastest_target() -> None:
    bench = FakeBench()
    study, left = study_of(bench), ways(candidates())[:3]
    before_s = study.first_measurements.budget.total_s and bench.spent_s
    found = study.estimates(left)
    lowered = [name for name in bench.seen if name.endswith("onnxruntime-int8") and "saved" in name]
    assert lowered == [f"{way[6].label}, onnxruntime-int8" for way in left]
    # An INT8 model takes 5 ms less the share that it saves.
    assert found.cost(TOME[1]) == pytest.approx(3.0)
    assert found.cost(Candidate(mac_reduction=0.95)) == float("inf")
    assert found.budget.model_s == pytest.approx((bench.spent_s - before_s) / 3) == bench.model_s


def test_under_a_latency_only_what_may_be_within_it_is_tried() -> None:
    study = study_of(max_ms=3.2, max_drop=None, minutes=1e3)
    left = ways(candidates())
    kept = {each.mac_reduction for each in study.within(left, study.estimates(left))}
    # 10 % slower than the limit is still tried.
    assert kept == {share for share in SHARES if 5 * (1 - share) <= 3.52}
    none = study_of(max_ms=0.1, max_drop=None, minutes=1e3)
    assert {each.mac_reduction for each in none.within(left, none.estimates(left))} == {SHARES[-1]}


def test_choices_read_one_half_and_the_judgement_the_other() -> None:
    bench = FakeBench(
        {
            TOME[0]: 0.9,
            TOME[1]: 0.88,
            TOME[2]: 0.5,
            **{Candidate(mac_reduction=share): 0.4 for share in (0.45, 0.475, 0.5)},
        }
    )
    study = study_of(bench, max_drop=10.0)
    choice = chosen(points_of(study), 10.0, None)
    assert choice is not None
    # A finer share than the best one's is as good here, and faster.
    assert choice.candidate == Candidate(mac_reduction=0.425, target="onnxruntime-int8")
    assert {name.rpartition(" of ")[2] for name in bench.seen if " of " in name} == {"100"}
    verdict = study.judged(choice)
    assert verdict.images == 50
    assert sorted({name for name in bench.seen if name.endswith(" of 50")}) == [
        "tome, pairs, merge-weighted, 42.5% saved, onnxruntime-int8: 0 to 50 of 50",
        "unpruned: 0 to 50 of 50",
    ]


def test_gains_are_over_fp32_on_onnx_runtime() -> None:
    points = points_of(study_of(targets=(OPENVINO,)))
    assert {point.candidate.target for point in points} == {"openvino-fp32"}
    for point in points:
        assert point.gain == pytest.approx(1 / (1 - (point.candidate.mac_reduction or 0)))


def test_a_target_that_is_much_slower_than_the_best_is_timed_once() -> None:
    bench = FakeBench(slow=("openvino-fp32",))
    study = study_of(bench, targets=(ONNXRUNTIME_INT8, OPENVINO))
    assert {point.candidate.target for point in points_of(study)} == {"onnxruntime-int8"}
    assert UNPRUNED.on("openvino-fp32") in study.first_measurements.baselines


def test_low_precision_is_not_measured_once_something_faster_qualifies() -> None:
    bench = FakeBench()
    points = points_of(study_of(bench, max_drop=10.0), TOME[:2])
    low = {name.partition(":")[0] for name in bench.seen if "int8" in name and ":" in name}
    assert low == {f"{points[0].candidate.label}"}
    assert points[0].candidate.target == "onnxruntime-int8"
    assert points[0].gain == pytest.approx(2 / (1 - (points[0].candidate.mac_reduction or 0)))
    assert {point.candidate.target for point in points[1:]} == {"onnxruntime-fp32"}


def test_beside_the_finalists_the_front_is_timed() -> None:
    every = tuple(Candidate(mac_reduction=share) for share in SHARES)
    steps = [round(0.025 * step, 6) for step in range(1, 39)]
    bench = FakeBench({Candidate(mac_reduction=share): 0.9 - 0.2 * share for share in steps})
    study = study_of(bench, max_drop=50.0, finalists=2, targets=(ONNXRUNTIME,))
    pruned = [point for point in points_of(study, every) if point.candidate.prunes]
    found = {point.candidate.mac_reduction or 0.0 for point in pruned}
    assert min(found) == 0.1
    assert max(found) > 0.6
    assert len(found) <= 4


@pytest.mark.parametrize("calibration_s", [0.0, 40.0])
@pytest.mark.parametrize("minutes", [1.5, 3.0, 10.0])
def test_the_minutes_bound_the_whole_run(minutes: float, calibration_s: float) -> None:
    """The clock is that of the measurements, which a calibration was the first of."""
    tops = {each: 0.9 - 0.3 * (each.mac_reduction or 0) ** 2 for each in candidates()}
    bench = FakeBench(tops, spent_s=calibration_s)
    study = study_of(bench, minutes=minutes, max_drop=5.0)
    found = study.measured(candidates())
    choice = chosen(found.points, 50.0, None)
    assert choice is not None
    study.judged(choice)
    compiled_s = 2 * 1000 * bench.image_s + 3 * bench.model_s
    one_s = 100 * bench.image_s
    assert bench.spent_s + compiled_s <= 60 * minutes + one_s
    assert found.tried >= 5


def test_too_few_minutes_are_refused_after_what_is_known_of_them() -> None:
    bench = FakeBench(spent_s=200.0)
    with pytest.raises(RecipeError, match="for one candidate"):
        study_of(bench, minutes=3.5).measured(candidates())
    assert not [name for name in bench.seen if "saved" in name]
