"""Choices read the search half alone; candidates come in turns, as many as there is time for."""

from typing import Any

import pytest

from exporter.errors import RecipeError
from exporter.targets import ONNXRUNTIME, ONNXRUNTIME_INT8, OPENVINO
from exporter.workflows.progress import Silent
from exporter.workflows.tuning.axes import AXES, UNPRUNED, Candidate, candidates
from exporter.workflows.tuning.choice import chosen
from exporter.workflows.tuning.study import Study, in_turns
from tests.workflows.tuning.small import FakeBench, numbered, settings, timed_at

TOME = tuple(Candidate(mac_reduction=share) for share in (0.2, 0.4, 0.6))


def study_of(
    bench: FakeBench | None = None, targets: Any = (ONNXRUNTIME, ONNXRUNTIME_INT8), **limits: Any
) -> Study:
    bench = bench or FakeBench()
    return Study(bench, numbered(100), numbered(50, 100), settings(**limits), targets, Silent())  # type: ignore[arg-type]


def test_every_way_has_its_turn_at_each_share_the_middle_ones_first() -> None:
    every = candidates({**AXES, "weights": ("", "small")})
    order = in_turns(every)
    assert sorted(order, key=str) == sorted(every, key=str)
    assert order[0] == Candidate(weights="small")
    shares = list(dict.fromkeys(each.mac_reduction for each in order[1:]))
    assert shares[0] == sorted(AXES["mac_reduction"])[len(shares) // 2]
    assert {shares[-1], shares[-2]} == {AXES["mac_reduction"][0], AXES["mac_reduction"][-1]}
    several = (len(order) - 1) // len(shares)
    assert len({each.mac_reduction for each in order[1 : 1 + several]}) == 1


def test_there_is_time_for_two_fifths_of_the_minutes() -> None:
    every = candidates()
    assert len(study_of(minutes=10.0).within_reach(every, seconds=24.0)) == 10
    assert len(study_of(minutes=1e6).within_reach(every, seconds=24.0)) == len(every)
    assert len(study_of(minutes=1e-3).within_reach(every, seconds=24.0)) == 1
    unreachable = Candidate(mac_reduction=0.95)
    assert study_of().within_reach([unreachable, TOME[0]], seconds=1.0) == TOME[:1]
    with pytest.raises(RecipeError, match="or --images where"):
        study_of().within_reach([unreachable], seconds=1.0)


def test_under_a_latency_shares_around_the_least_fast_enough_stay() -> None:
    study = study_of(max_ms=3.2, max_drop=None, minutes=1e6)
    kept = {each.mac_reduction for each in study.within_reach(candidates(), seconds=1.0)}
    assert kept == {0.35, 0.4, 0.45, 0.5}
    none = study_of(max_ms=0.1, max_drop=None, minutes=1e6).within_reach(candidates(), seconds=1.0)
    assert max(each.mac_reduction or 0 for each in none) == max(AXES["mac_reduction"])


def test_limits_beyond_the_model_are_refused() -> None:
    assert study_of(max_drop=80.0).check_limits() == 1.0
    with pytest.raises(RecipeError, match="less than the accuracy, 9"):
        study_of(max_drop=95.0).check_limits()
    with pytest.raises(RecipeError, match="which 64 images take"):
        study_of(minutes=0.01).check_limits()
    study_of(max_drop=95.0, metric="agreement").check_limits()


def test_choices_read_one_half_and_the_judgement_the_other() -> None:
    bench = FakeBench({TOME[0]: 0.9, TOME[1]: 0.88, TOME[2]: 0.5})
    study = study_of(bench, max_drop=10.0)
    answers = study.accuracy(TOME)
    points = study.points(answers, study.speeds(answers, study.baselines(answers)))
    choice = chosen(points, 10.0, None)
    assert choice is not None
    # A finer share than the best one's is as good here, and faster.
    assert choice.candidate == Candidate(mac_reduction=0.425, target="onnxruntime-int8")
    assert {name.rpartition(" of ")[2] for name in bench.seen} == {"100"}
    verdict = study.judged(choice)
    assert verdict.images == 50
    assert sorted({name for name in bench.seen if name.endswith(" of 50")}) == [
        "tome, pairs, merge-weighted, 42.5% saved, onnxruntime-int8: 0 to 50 of 50",
        "unpruned: 0 to 50 of 50",
    ]


def test_gains_are_over_fp32_on_onnx_runtime() -> None:
    study = study_of(targets=(OPENVINO,))
    answers = study.accuracy(TOME)
    baselines = study.baselines(answers)
    assert {UNPRUNED.on("openvino-fp32"), UNPRUNED.on("onnxruntime-fp32")} <= baselines.keys()
    points = study.points(answers, study.speeds(answers, baselines))
    assert {point.candidate.target for point in points} == {"openvino-fp32"}
    assert points[0].gain == pytest.approx(1 / (1 - (points[0].candidate.mac_reduction or 0)))


def test_a_target_of_less_than_half_the_best_speed_is_timed_once() -> None:
    study = study_of(targets=(ONNXRUNTIME_INT8, OPENVINO))
    answers = study.accuracy(TOME)
    baselines = study.baselines(answers)
    slow = {each: speed for each, speed in baselines.items() if "int8" not in each.target}
    scaled = {each: timed_at(2 * speed.median_ms) for each, speed in slow.items()}
    speeds = study.speeds(answers, {**baselines, **scaled})
    assert {each.target for each in speeds} == {"onnxruntime-int8", "onnxruntime-fp32"}


def test_low_precision_is_not_measured_once_something_faster_qualifies() -> None:
    bench = FakeBench()
    study = study_of(bench, max_drop=10.0)
    answers = study.accuracy(TOME[:2])
    points = study.points(answers, study.speeds(answers, study.baselines(answers)))
    low = {name.partition(":")[0] for name in bench.seen if "int8" in name}
    assert low == {f"{points[0].candidate.label}"}
    assert points[0].candidate.target == "onnxruntime-int8"
    assert points[0].gain == pytest.approx(2 / (1 - (points[0].candidate.mac_reduction or 0)))
    assert {point.candidate.target for point in points[1:]} == {"onnxruntime-fp32"}


def test_beside_the_finalists_the_front_is_timed() -> None:
    every = tuple(Candidate(mac_reduction=share) for share in AXES["mac_reduction"])
    shares = [*AXES["mac_reduction"], *(round(share + 0.025, 6) for share in AXES["mac_reduction"])]
    tops = {Candidate(mac_reduction=share): 0.9 - 0.2 * share for share in shares}
    study = study_of(FakeBench(tops), max_drop=50.0, finalists=2)
    answers = study.accuracy(every)
    timed = study.speeds(answers, study.baselines(answers))
    found = {each.mac_reduction for each in timed if each.mac_reduction}
    assert {0.1, 0.625} <= found
    assert len(found) <= 4
