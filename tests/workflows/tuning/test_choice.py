"""The choice reads one half and is judged on the other; over ten seeds of recorded answers the limit holds."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from exporter.data.images import ImageFile, ImageFolder
from exporter.evaluation.intervals import loss_bound
from exporter.vocabulary import Status
from exporter.workflows.tuning.axes import Candidate
from exporter.workflows.tuning.choice import Point, chosen, front, images_needed, judged, qualifies
from exporter.workflows.tuning.halves import halves
from exporter.workflows.tuning.halving import loss_of, margin_of

WAY = Candidate(mac_reduction=0.3, target="onnxruntime-fp32")


def point(images_per_s: float, loss: float, margin: float | None = None) -> Point:
    return Point(
        candidate=replace(WAY, mac_reduction=loss),
        gmacs=1.0,
        loss_points=loss,
        margin_points=loss if margin is None else margin,
        images=100,
        images_per_s=images_per_s,
        median_ms=1000 / images_per_s,
        gain=images_per_s / 10,
        file_bytes=1,
    )


def test_the_fastest_that_qualifies_is_chosen() -> None:
    points = [point(300, 2.0), point(200, 0.4), point(250, 0.4, margin=0.6), point(100, 0.0)]
    assert chosen(points, 0.5, None) == points[1]
    assert chosen(points, 0.6, None) == points[2]
    assert chosen(points[:1], 0.5, None) is None
    assert qualifies(point(100, 0.5), 0.5)
    assert not qualifies(point(9, 0.5), 0.5)


def test_within_a_latency_the_least_loss_is_chosen() -> None:
    points = [point(300, 2.0), point(200, 0.4), point(100, 0.0)]
    assert chosen(points, None, 5.0) == points[1]
    assert chosen(points, None, 3.0) is None


def test_the_front_is_what_nothing_beats_in_both() -> None:
    points = [point(300, 2.0), point(250, 2.5), point(200, 0.4), point(100, 0.4), point(50, -0.1)]
    assert front(points) == (points[0], points[2], points[4])


@pytest.mark.parametrize(
    ("right", "status"), [(895, Status.MET), (886, Status.NOT_SHOWN), (850, Status.MISSED)]
)
def test_the_status_follows_the_limits(right: int, status: Status) -> None:
    dense, own = np.arange(1000) < 900, np.arange(1000) < right
    found = judged(dense, own, 1.5)
    assert found.status == status
    assert found.loss_points == pytest.approx((900 - right) / 10)
    assert found.bound_points == pytest.approx(100 * loss_bound(900 - right, 0, 1000))
    assert judged(dense, own, None).status == Status.MET


def test_images_needed_are_enough_and_no_fewer() -> None:
    for rates in ({"lost": 0.0, "gained": 0.0}, {"lost": 0.01, "gained": 0.008}):
        enough = images_needed(rates, 0.5)
        bounds = [
            100 * loss_bound(rates["lost"] * count, rates["gained"] * count, count)
            for count in (enough - 1, enough)
        ]
        assert bounds[1] <= 0.5 < bounds[0]


def test_the_promise_is_held_over_ten_seeds() -> None:
    """One table of per-image answers, as a measurement leaves it: the more a candidate saves, the more it loses."""
    random, images = np.random.default_rng(0), 2000
    ease = random.random(images)
    dense = ease < 0.9
    answers = {}
    for saved in np.linspace(0.1, 0.6, 26):
        flips = random.random(images) < 0.03
        answers[float(saved)] = (ease < 0.9 - 0.06 * saved) ^ flips & (random.random(images) < 0.5)
    held = 0
    for seed in range(10):
        files = tuple(ImageFile(Path(f"images/{at}.png"), 0) for at in range(images))
        search, final = halves(ImageFolder(Path("images"), files), seed)
        first, second = (np.array([int(file.path.stem) for file in half.files]) for half in (search, final))
        points = []
        for saved, own in answers.items():
            lost, gained = loss_of(dense[first], own[first])
            margin = 100 * margin_of(dense[first], own[first])
            points.append(point(100 + saved, 100 * (lost - gained) / len(first), margin))
        found = chosen(points, 3.0, None)
        assert found is not None
        own = answers[min(answers, key=lambda saved: abs(100 + saved - found.images_per_s))]
        held += judged(dense[second], own[second], 3.0).loss_points <= 3.0
    assert held >= 9
