"""rho for a measured speed-up, on a machine whose time is a line in MACs that the test draws."""

from collections.abc import Sequence

import numpy as np
import pytest

from exporter.errors import RecipeError
from exporter.evaluation.benchmark import Throughput, compare_speed
from exporter.evaluation.benchmark.points import Point, RhoSweep
from exporter.models.registry import ModelRequest, describe
from exporter.records import Schedule
from exporter.schedule.macs import dense_macs, pruned_macs
from exporter.schedule.plan import ScheduleSettings, star_schedule
from exporter.workflows.amount import Speedup
from exporter.workflows.measuring import Measure
from exporter.workflows.search import find_rho
from tests.schedule.published import DEIT_S

SPEC = describe(ModelRequest("deit_small_patch16_224")).spec
DENSE = dense_macs(SPEC)


def plan(rho: float) -> Schedule:
    return star_schedule(SPEC, DEIT_S.acs, rho, ScheduleSettings())


def cost(schedule: Schedule) -> float:
    return pruned_macs(SPEC, schedule.keep).total


def machine(fixed_ms: float, noise_share: float = 0.0) -> tuple[Measure, list[float]]:
    """A machine that takes `fixed_ms` and 10 ms a dense model's MACs, and the rho that it was asked for."""
    generator, asked = np.random.default_rng(0), list[float]()

    def times(share: float) -> Throughput:
        rounds = (fixed_ms + 10 * share) * (1 + noise_share * generator.standard_normal(20))
        return Throughput(8, 8e3 / float(np.median(rounds)), 1.0, 1.0, (1.0, 1.0), tuple(rounds.tolist()))

    def measure(schedules: Sequence[Schedule]) -> RhoSweep:
        dense, points = times(1.0), []
        for schedule in schedules:
            asked.append(schedule.rho or 0.0)
            pruned = times(cost(schedule) / DENSE.total)
            comparison = compare_speed(dense, pruned, (DENSE.total, cost(schedule)))
            points.append(Point(schedule.rho, cost(schedule) / 1e9, pruned, comparison))
        return RhoSweep(8, DENSE.gmacs, dense, tuple(points))

    return measure, asked


@pytest.mark.parametrize("target", [1.1, 1.5, 2.0, 3.0])
@pytest.mark.parametrize("fixed_ms", [0.0, 1.0])
def test_the_target_is_met_closely_and_quickly(target: float, fixed_ms: float) -> None:
    measure, asked = machine(fixed_ms)
    result = find_rho(plan, cost, measure, Speedup(target))
    assert result.schedule is not None and result.found is not None
    assert target <= result.found.comparison.quartiles[0] < 1.05 * target
    assert result.schedule.rho == result.found.rho == asked[-1]
    assert [point.rho for point in result.tried] == asked
    assert len(asked) <= 4


def test_under_noise_the_quartile_reaches_the_target_not_the_median_alone() -> None:
    measure, asked = machine(1.0, noise_share=0.02)
    result = find_rho(plan, cost, measure, Speedup(1.5, measurements=8))
    assert result.found is not None
    assert result.found.comparison.quartiles[0] >= 1.5
    assert result.found.rho == max(
        point.rho for point in result.tried if point.comparison.quartiles[0] >= 1.5 and point.rho
    )
    assert len(asked) <= 8


def test_out_of_reach_is_known_after_one_measurement() -> None:
    measure, asked = machine(fixed_ms=10.0)  # at most 2 ×
    result = find_rho(plan, cost, measure, Speedup(2.5))
    assert (result.schedule, result.found, len(asked)) == (None, None, 1)
    assert result.tried[0].comparison.speedup < 2


@pytest.mark.parametrize(("speedup", "steps"), [(1.0, 6), (0.5, 6), (float("nan"), 6), (1.5, 1)])
def test_targets_that_are_none(speedup: float, steps: int) -> None:
    with pytest.raises(RecipeError, match=r"speedup \| got|measurements \| got 1"):
        Speedup(speedup, steps)
