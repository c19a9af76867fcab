"""The choice reads one half and is judged on the other; over ten seeds of recorded answers the limit holds."""

from typing import Any

import numpy as np
import pytest

from exporter.core.base.errors import RecipeError
from exporter.core.base.intervals import loss_interval
from exporter.core.base.records import Pair
from exporter.core.base.tensor_names import Array
from exporter.core.base.vocabulary import Method, Status
from exporter.core.schedule.prune import Prune
from exporter.measure.accuracy import Predictions
from exporter.measure.benchmark import Ratio, Throughput
from exporter.measure.loss import PairResult
from exporter.tuning.choice import (
    InOneRun,
    Point,
    Timed,
    TuneSettings,
    around,
    chosen,
    images_needed,
    judged,
    margin_of,
    most_accurate,
    point_of,
    qualifies,
)
from exporter.tuning.ways import Candidate, Way

WAY = Candidate(Prune(mac_reduction=0.3), target="onnxruntime-fp32")


def point(
    images_per_s: float,
    loss: float,
    margin: float | None = None,
    agreement: float = 1.0,
) -> Point:
    gain = images_per_s / 10
    return Point(
        candidate=WAY,
        gmacs=1.0,
        loss=PairResult(
            "unpruned", "candidate", 100, agreement, (0.0, 1.0), loss_points=loss
        ),
        margin_points=loss if margin is None else margin,
        timed=timed(1000 / images_per_s),
        speed_up=Ratio(gain, (0.9 * gain, 1.1 * gain)),
        gain=Ratio(gain, (0.9 * gain, 1.1 * gain)),
        images_per_s=images_per_s,
    )


def timed(ms: float) -> Timed:
    return Timed(Throughput(1, 1e3 / ms, ms, ms, (ms,) * 5), 5)


def answers(dense: Array, own: Array, same: Array | None = None) -> Pair[Predictions]:
    """Answers of which some are right; where both are wrong, they are alike unless `same` says otherwise."""
    alike = (dense == own) if same is None else same
    labels = np.zeros(len(dense), np.int64)
    wrong = np.where(alike | own, 1, 2)
    return Pair(
        *(
            Predictions(np.where(right, 0, no)[:, None], labels)
            for right, no in ((dense, 1), (own, wrong))
        )
    )


def within(points: float) -> TuneSettings:
    return TuneSettings(max_drop=points)


@pytest.mark.parametrize(
    "goals", [{}, {"max_drop": 1, "max_ms": 5}, {"max_drop": 1, "speedup": 2}]
)
def test_one_goal_is_given(goals: dict[str, Any]) -> None:
    with pytest.raises(RecipeError, match="need one of max_drop, max_ms, speedup"):
        TuneSettings(**goals)


def test_the_fastest_that_qualifies_is_chosen() -> None:
    points = [
        point(300, 2.0),
        point(200, 0.4),
        point(250, 0.4, margin=0.6),
        point(100, 0.0),
    ]
    assert chosen(points, within(0.5)) == points[1]
    assert chosen(points, within(0.6)) == points[2]
    assert qualifies(point(100, 0.5), within(0.5))
    assert not qualifies(point(9, 0.5), within(0.5))


def test_on_few_images_the_most_accurate_of_the_fast_ones_is_chosen() -> None:
    """Nothing is shown to be within the limit, but some losses are measured there."""
    points = [
        point(300, 0.9, margin=4.0),
        point(200, 0.5, margin=3.0),
        point(9, 0.0, margin=0.0),
    ]
    assert chosen(points, within(1.0)) == points[1]
    assert chosen([point(300, 1.1, margin=4.0), points[2]], within(1.0)) is None
    # Of equal losses, what changes fewer answers.
    same = [
        point(300, 0.5, margin=3.0, agreement=0.9),
        point(250, 0.5, margin=3.0, agreement=0.95),
    ]
    assert chosen([*same, points[0]], within(1.0)) == same[1]


def test_within_a_time_the_least_loss_is_chosen() -> None:
    points = [point(300, 2.0), point(200, 0.4), point(100, 0.0)]
    assert chosen(points, TuneSettings(max_ms=5.0)) == points[1]
    assert chosen(points, TuneSettings(max_ms=3.0)) is None
    # By the lower quartile: 0.9 of the gain.
    assert chosen(points, TuneSettings(speedup=18.0)) == points[1]
    assert chosen(points, TuneSettings(speedup=18.1)) == points[0]
    assert TuneSettings(speedup=2.0).reached(1.0, Ratio(2.5, (2.0, 3.0)))
    assert not TuneSettings(speedup=2.0).reached(1.0, Ratio(2.5, (1.9, 3.0)))


@pytest.mark.parametrize(
    ("right", "status"),
    [(895, Status.MET), (886, Status.NOT_SHOWN), (850, Status.MISSED)],
)
def test_the_status_follows_the_limits(right: int, status: Status) -> None:
    found = judged(answers(np.arange(1000) < 900, np.arange(1000) < right), 1.5)
    assert found.status == status
    assert found.loss.loss_points == pytest.approx((900 - right) / 10)
    assert found.loss.agreement == pytest.approx(1 - (900 - right) / 1000)
    assert judged(answers(*[np.arange(1000) < right] * 2), None).status == Status.MET


@pytest.mark.parametrize(("limit", "changed"), [(0.5, 0.0), (1.0, 0.04), (3.0, 0.2)])
def test_images_needed_are_enough_and_no_fewer(limit: float, changed: float) -> None:
    enough = images_needed(limit, changed)
    bounds = [
        100 * loss_interval(changed / 2 * n, changed / 2 * n, n)[1]
        for n in (enough - 1, enough)
    ]
    assert bounds[1] <= limit < bounds[0]


def test_a_point_is_paired_in_images_and_in_rounds() -> None:
    dense, own = np.array([1, 1, 0, 0], bool), np.array([1, 0, 1, 1], bool)
    times = InOneRun(candidate=timed(4.0), unpruned=timed(6.0), base=timed(10.0))
    found = point_of(WAY, 2e9, answers(dense, own), times, 200.0)
    assert found.loss_points == -25.0
    assert found.loss.images == 4
    assert (found.speed_up.median, found.gain.median) == (1.5, 2.5)
    assert found.gmacs == 2.0
    assert (found.loss.lost, found.loss.gained, found.loss.agreement) == (1, 2, 0.25)
    # By the speed of the unpruned model, which was another in its own run.
    assert found.images_per_s == 500.0
    assert found.median_ms == 2.0
    assert found.timed.file_bytes == 5
    # Of four images and two half ones of each kind, one is lost and two are gained.
    assert found.margin_points == pytest.approx(
        100 * (-1 / 6 + 2 * ((4 / 6 - 1 / 36) / 6) ** 0.5)
    )
    same = np.arange(64) < 60
    assert margin_of(answers(same, same)) == pytest.approx(2 / 66)


def test_the_most_accurate_ways_of_each_network_are_left() -> None:
    tome, star, a_star = (
        (Candidate(Prune(method=method)),)
        for method in (Method.TOME, Method.STAR, Method.A_STAR)
    )
    given, small = (Candidate(Prune(), "w", given=True),), (Candidate(weights="s"),)
    right: dict[Way, int] = {tome: 9, star: 5, a_star: 9, small: 1, given: 3}
    assert most_accurate(list(right), right.__getitem__) == [
        tome,
        a_star,
        small,
        given,
    ]


SHARES = tuple(Candidate(Prune(mac_reduction=share / 10)) for share in range(1, 10))


@pytest.mark.parametrize("edge", range(10))
def test_the_edge_of_a_goal_is_found_by_few_measurements(edge: int) -> None:
    asked: list[Candidate] = []

    def beyond(each: Candidate) -> bool:
        asked.append(each)
        return SHARES.index(each) >= edge

    milder = [SHARES.index(each) for each in around(SHARES, beyond, 3, milder=True)]
    assert milder[0] == max(edge - 1, 0)
    assert len(asked) <= 4
    if edge > 4:
        assert milder == [edge - 1, edge - 3, edge - 5]
    faster = [SHARES.index(each) for each in around(SHARES, beyond, 3, milder=False)]
    assert faster[0] == min(edge, 8)
    assert set(faster) == {edge - 1, edge, edge + 1} or edge in (0, 8, 9)
