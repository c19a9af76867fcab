"""What loses too much or is beaten goes; what may be the answer stays, and costs little comes first."""

import numpy as np
import pytest

from exporter.workflows.tuning.halving import FEWEST, front, loss_of, margin_of, ranked, survivors

Array = np.ndarray


def right(share: float, images: int = 400) -> Array:
    """The first so many images are right."""
    return np.arange(images) < round(share * images)


DENSE = right(0.9)


def test_losses_are_paired() -> None:
    dense, other = np.array([1, 1, 0, 0], bool), np.array([1, 0, 1, 1], bool)
    assert loss_of(dense, other) == (1, 2)
    # Of four images and two half ones of each kind, one is lost and two are gained.
    assert margin_of(dense, other) == pytest.approx(-1 / 6 + 2 * ((4 / 6 - 1 / 36) / 6) ** 0.5)
    assert margin_of(right(0.9, 64), right(0.9, 64)) == pytest.approx(2 / 66)
    assert margin_of(right(0.9, 998), right(0.9, 998)) == pytest.approx(2 / 1000)


def test_what_surely_loses_too_much_goes() -> None:
    hits = {"good": right(0.895), "bad": right(0.7)}
    macs = {"good": 2.0, "bad": 1.0}
    assert survivors(hits, DENSE, macs, 0.01) == ["good"]
    assert survivors(hits, DENSE, macs, None) == ["good", "bad"]


def test_what_may_still_qualify_stays() -> None:
    few = {"unlucky": right(0.8, 20), "good": right(0.9, 20)}
    assert set(survivors(few, right(0.9, 20), {"unlucky": 1.0, "good": 2.0}, 0.02)) == {"unlucky", "good"}


def test_the_less_accurate_of_equal_cost_goes() -> None:
    hits = {"good": right(0.89), "beaten": right(0.85), "cheaper": right(0.85)}
    macs = {"good": 1.0, "beaten": 1.0, "cheaper": 0.5}
    assert survivors(hits, DENSE, macs, 0.5) == ["cheaper", "good"]


def test_half_is_left_and_the_cheapest_within_the_limit_comes_first() -> None:
    hits = {name: right(0.9) for name in range(40)}
    macs = {name: float(name) for name in range(40)}
    assert survivors(hits, DENSE, macs, 0.01) == list(range(20))
    assert len(survivors({name: hits[name] for name in range(8)}, DENSE, macs, 0.01)) == FEWEST


def test_those_beyond_the_limit_come_by_how_little_they_exceed_it() -> None:
    hits = {"far": right(0.86), "near": right(0.885), "within": right(0.895)}
    macs = {"far": 1.0, "near": 2.0, "within": 3.0}
    assert survivors(hits, DENSE, macs, 0.01) == ["within", "near"]
    assert survivors(hits, DENSE, macs, 0.03) == ["near", "within", "far"]


def test_those_that_qualify_are_timed_first_whatever_is_cheaper() -> None:
    # Of 400 images: a loss of 2 points has an error of 0.7, so it may be 3.4.
    hits = {"safe": right(0.9), "cheap": right(0.88), "cheapest": right(0.85)}
    macs = {"safe": 3.0, "cheap": 2.0, "cheapest": 1.0}
    assert survivors(hits, DENSE, macs, 0.03)[0] == "cheap"
    assert ranked(hits, DENSE, macs, 0.03) == ["safe", "cheap", "cheapest"]
    assert ranked(hits, DENSE, macs, 0.04) == ["cheap", "safe", "cheapest"]


def test_the_front_stays_beside_the_most_promising_half() -> None:
    """Twenty cheap ones are within the limit; the one that is best of all costs most."""
    hits = {name: right(0.88) for name in range(20)} | {20: right(0.9), 21: right(0.88)}
    macs = {name: float(name) for name in hits}
    assert survivors(hits, DENSE, macs, 0.03) == [*range(11), 20]
    losses = {name: 1 - float(own.mean()) for name, own in hits.items()}
    assert front(hits, losses.__getitem__, macs) == [0, 20]
    assert front([], losses.__getitem__, macs) == []
