"""Two shares rank the ways; those that are left get all shares, so the front is covered from end to end."""

from dataclasses import replace
from typing import Any

import pytest

from exporter.workflows.tuning.accuracy import AccuracyMeter, Answers, narrowed, refined
from exporter.workflows.tuning.axes import AXES, Candidate, Way, candidates, ways
from exporter.workflows.tuning.race import probes, raced, timing_order
from tests.workflows.tuning.small import FakeBench, estimates, numbered

EVERY = candidates()
SHARES = AXES["mac_reduction"]
# The loss that a way has where it saves everything, in the order of the axes: the best ways are not the first ones.
FULL = {way[0].way: 0.1 + 0.1 * ((5 * place + 7) % 17) for place, way in enumerate(ways(EVERY))}


def loss_of(candidate: Candidate) -> float:
    return FULL[candidate.way] * (candidate.mac_reduction or 0.0) ** 2


def bench_of() -> FakeBench:
    steps = [round(0.025 * step, 6) for step in range(1, 30)]
    finer = [replace(way[0], mac_reduction=share) for way in ways(EVERY) for share in steps]
    return FakeBench({each: 0.9 - loss_of(each) for each in finer})


def race(bench: FakeBench, every: list[Way], until_s: float = 1e9) -> list[Way]:
    meter = AccuracyMeter(bench, numbered(500), "top1")  # type: ignore[arg-type]
    return raced(meter, every, until_s=until_s, image_s=bench.image_s, advance=lambda *_: None)


def test_two_of_each_class_are_left_and_they_lose_least() -> None:
    left = race(bench_of(), ways(EVERY))
    for reduce in ("merge-weighted", "drop"):
        own = sorted((way for way in FULL if way.reduce == reduce), key=FULL.__getitem__)
        assert {way[0].way for way in left if way[0].reduce == reduce} == set(own[:2])
    assert left == sorted(left, key=lambda way: FULL[way[0].way])


def test_only_two_shares_are_looked_at_and_fewer_ways_the_more_images() -> None:
    bench = bench_of()
    race(bench, ways(EVERY))
    assert {name.split("%")[0].split()[-1] for name in bench.seen} == {"30", "50"}
    parts = [sum(name.endswith(f"{part} of 500") for name in bench.seen) for part in ("0 to 64", "64 to 128")]
    assert parts[0] == 2 * len(FULL) > parts[1] > 0


def test_other_weights_have_a_class_of_their_own_and_single_ways_take_no_part() -> None:
    bench = bench_of()
    smaller = [tuple(replace(each, weights="small") for each in way) for way in ways(EVERY)]
    alone = (Candidate(weights="tuned", given=True),)
    left = race(bench, [*ways(EVERY), *smaller, alone])
    assert sum(way[0].weights == "small" for way in left) == 4
    assert alone in left
    assert not any("tuned" in name for name in bench.seen)


def test_without_time_no_way_is_ruled_out() -> None:
    bench = bench_of()
    assert race(bench, ways(EVERY), until_s=1.0) == ways(EVERY)
    assert not bench.seen
    assert [each.mac_reduction for each in probes(ways(EVERY)[0])] == [0.3, 0.5]


def test_with_little_time_the_hard_share_alone_ranks_the_ways() -> None:
    bench = bench_of()
    assert len(race(bench, ways(EVERY), until_s=1.5 * 64 * len(FULL) * bench.image_s)) < len(FULL)
    assert {name.split("%")[0].split()[-1] for name in bench.seen} == {"50"}


def test_every_way_has_its_turn_at_each_share_those_far_apart_first() -> None:
    every = ways(candidates({**AXES, "weights": ("", "small")}))
    order = timing_order(every)
    assert sorted(order, key=str) == sorted((each for way in every for each in way), key=str)
    shares = list(dict.fromkeys(each.mac_reduction for each in order if each.mac_reduction))
    assert shares[:5] == [0.3, 0.5, SHARES[0], SHARES[4], SHARES[-1]]
    assert Candidate(weights="small") in order


def coverage(answers: Answers) -> float:
    """Points that the front loses more than the best of all candidates of as large a share, on average."""
    excess = []
    for share in SHARES:
        least = min(loss_of(each) for each in EVERY if each.mac_reduction == share)
        found = [loss_of(each) for each in answers.hits if (each.mac_reduction or 0) >= share]
        excess.append(100 * (min(found, default=0.9) - least))
    return sum(excess) / len(excess)


@pytest.mark.parametrize("minutes", [2.0, 3.0])
def test_the_front_is_covered_better_than_by_all_ways_at_the_middle_shares(minutes: float) -> None:
    how: dict[str, Any] = {"max_drop": 0.15, "advance": lambda *_: None}

    def before(bench: FakeBench) -> Answers:
        known, meter = estimates(bench, minutes=minutes), AccuracyMeter(bench, numbered(500), "top1")  # type: ignore[arg-type]
        order = sorted(EVERY, key=lambda each: abs(SHARES.index(each.mac_reduction) - 4))
        affordable = int(0.4 * known.budget.accuracy_until_s() / (64 * bench.image_s))
        return narrowed(meter, order[:affordable], known, **how)

    def after(bench: FakeBench) -> Answers:
        known, meter = estimates(bench, minutes=minutes), AccuracyMeter(bench, numbered(500), "top1")  # type: ignore[arg-type]
        until_s = known.budget.accuracy_until_s()
        order = timing_order(race(bench, ways(EVERY), 0.4 * until_s))
        return refined(meter, narrowed(meter, order, known, **how), known, **how)

    assert coverage(before(bench_of())) > 2.0
    assert coverage(after(bench_of())) < 0.7
