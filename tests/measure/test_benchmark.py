"""Speed is measured with a clock that the tests turn themselves: no test depends on this machine's."""

from collections import Counter
from itertools import permutations

import numpy as np
import pytest

from exporter.measure.benchmark import (
    Ratio,
    Throughput,
    ratio_of,
    throughput,
)
from tests.fakes import TurnedClock, forever

FEED = {"images": np.zeros((4, 3), np.float32)}


def measured(*rounds_ms: float, batch: int = 4) -> Throughput:
    return Throughput(batch, 1.0, 1.0, 1.0, rounds_ms)


def test_every_round_runs_all_and_nobody_has_a_place_of_its_own() -> None:
    clock = TurnedClock()
    names = ("dense", "pruned", "sliced")
    throughput(
        {name: clock.runner(name, forever(1.0)) for name in names},
        FEED,
        batch=4,
        rounds=299,
        warmup=1,
        clock=clock,
    )
    rounds = [tuple(clock.ran[start : start + 3]) for start in range(0, 900, 3)]
    assert {tuple(sorted(each)) for each in rounds} == {names}
    after_itself = Counter(
        name
        for name, before in zip(clock.ran[1:], clock.ran, strict=False)
        if name == before
    )
    assert set(rounds) == set(permutations(names))
    assert max(after_itself[name] for name in names) < 1.5 * min(
        after_itself[name] for name in names
    )


def test_the_numbers_come_from_the_timed_rounds_alone() -> None:
    clock = TurnedClock()
    times_s = iter([9.0, 9.0, 0.010, 0.020, 0.030, 0.040, 0.090])
    result = throughput(
        {"a": clock.runner("a", times_s)},
        FEED,
        batch=4,
        rounds=5,
        warmup=2,
        clock=clock,
    )["a"]
    assert result.rounds_ms == pytest.approx((10, 20, 30, 40, 90))
    assert (result.median_ms, result.p99_ms) == pytest.approx((30, 90))
    assert result.images_per_s == pytest.approx(4 / 0.030)


@pytest.mark.parametrize(
    ("pruned_ms", "median", "outcome"),
    [
        ((5,) * 5, 2.0, "faster"),
        ((20,) * 5, 0.5, "slower"),
        ((10,) * 5, 1.0, "undecided"),
        ((5, 8, 9, 11, 12), 10 / 9, "undecided"),
        ((8, 9, 11, 12, 20), 10 / 11, "undecided"),
    ],
)
def test_the_outcome_follows_the_quartiles(
    pruned_ms: tuple[float, ...], median: float, outcome: str
) -> None:
    result = ratio_of(measured(*[10.0] * 5), measured(*pruned_ms))
    assert result.outcome == outcome
    assert result.median == pytest.approx(median)
    low, high = (10 / sorted(pruned_ms)[place] for place in (3, 1))
    assert result.quartiles == pytest.approx((low, high))


def test_ratios_are_taken_round_by_round() -> None:
    """A machine that slows down tenfold on the way: the medians drift, each round's ratio does not."""
    dense = measured(10, 20, 40, 80, 100)
    pruned = measured(5, 10, 20, 40, 50)
    assert ratio_of(dense, pruned) == Ratio(2.0, (2.0, 2.0))
