"""The search for a latency: candidates follow the measured times, and a pair is timed beside the whole model."""

import pytest

from exporter.depth.joint import Pair
from exporter.workflows.depth.latency import MEASUREMENTS, PairClock, Timed, within_ms
from exporter.workflows.depth.models import SmallerModels
from exporter.workflows.progress import Silent
from exporter.workflows.recipes.resolve import resolve
from tests.commands import Workplace
from tests.workflows.depth.collection import collection

LEAST, DENSE = 0.2, 1.0


def find(gmacs: float) -> Pair:
    """More patches are better, so the best pair has as many multiply-adds as it may."""
    return Pair(0, 0, 1.0, min(max(gmacs, LEAST), DENSE), 80.0)


def clock(overhead_ms: float) -> "tuple[list[float], object]":
    seen: list[float] = []

    def time(pair: Pair) -> Timed:
        seen.append(pair.gmacs)
        return Timed(pair, overhead_ms + 100 * pair.gmacs, overhead_ms + 100)

    return seen, time


@pytest.mark.parametrize(("overhead_ms", "max_ms"), [(0.0, 50.0), (10.0, 50.0), (30.0, 80.0), (0.0, 99.0)])
def test_the_last_one_is_just_within_the_latency(overhead_ms: float, max_ms: float) -> None:
    seen, time = clock(overhead_ms)
    *_, last = within_ms(find, time, DENSE, max_ms)  # type: ignore[arg-type]
    assert 0.97 * max_ms <= last.median_ms <= max_ms
    assert seen[0] == DENSE and len(seen) <= MEASUREMENTS


def test_a_latency_above_that_of_the_whole_model_takes_one_measurement() -> None:
    seen, time = clock(0.0)
    (only,) = within_ms(find, time, DENSE, 200.0)  # type: ignore[arg-type]
    assert only.pair.gmacs == DENSE and seen == [DENSE]


def test_out_of_reach_it_ends_with_the_cheapest_pair() -> None:
    seen, time = clock(10.0)
    *_, last = within_ms(find, time, DENSE, 5.0)  # type: ignore[arg-type]
    assert last.pair.gmacs == LEAST and last.median_ms > 5.0 and len(seen) == 2


@pytest.mark.ort
def test_a_pair_is_timed_beside_the_whole_model(workplace: Workplace) -> None:
    job = resolve(workplace.recipe(rounds=5, batch=2, threads=1))
    models = SmallerModels.of(*collection(workplace))
    pair = Pair(1, 1, 0.5, models.macs((1, 1), 0.5) / 1e9, 80.0)
    found = PairClock(job, models, Silent())(pair)
    assert found.pair == pair and found.median_ms > 0 and found.dense_ms > 0
