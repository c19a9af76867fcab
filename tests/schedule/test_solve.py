"""rho for a target."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.errors import ScheduleError
from exporter.models.registry import ModelRequest, describe
from exporter.records import Schedule
from exporter.schedule.macs import dense_macs, pruned_macs
from exporter.schedule.plan import ScheduleSettings, star_schedule
from exporter.schedule.solve import LEAST_RHO, rho_for
from tests.schedule.published import DEIT_S

SPEC = describe(ModelRequest("deit_small_patch16_224")).spec


def plan(rho: float) -> Schedule:
    return star_schedule(SPEC, DEIT_S.acs, rho, ScheduleSettings())


def cost(schedule: Schedule) -> float:
    return pruned_macs(SPEC, schedule.keep).total


@given(share=st.floats(0.2, 1.0))
def test_the_target_is_met_and_the_next_step_up_would_miss_it(share: float) -> None:
    target = share * dense_macs(SPEC).total
    schedule = rho_for(plan, cost, target)
    assert cost(schedule) <= target
    assert schedule.rho is not None
    assert schedule.rho == 1.0 or cost(plan(min(1.0, schedule.rho + 1e-8))) > target


@given(
    costs=st.lists(st.integers(1, 100), min_size=1, max_size=40),
    target=st.integers(1, 100),
    bisections=st.integers(3, 12),
)
def test_a_cost_that_rises_and_falls_meets_the_target_with_one_above_that_does_not(
    costs: list[int], target: int, bisections: int
) -> None:
    """a-STAR's cost need not rise with rho: here it is any step function."""

    def wavy(schedule: Schedule) -> float:
        assert schedule.rho is not None
        return costs[min(int(schedule.rho * len(costs)), len(costs) - 1)]

    tried = [plan(max(LEAST_RHO, step / 8)) for step in range(9)]
    if min(map(wavy, tried)) > target:
        with pytest.raises(ScheduleError, match=f"at least {min(map(wavy, tried))}, "):
            rho_for(plan, wavy, target, bisections)
        return
    found = rho_for(plan, wavy, target, bisections)
    assert found.rho is not None
    assert wavy(found) <= target
    assert found.rho == 1.0 or wavy(plan(min(1.0, found.rho + 2.0**-bisections))) > target
    assert all(wavy(each) > target for each in tried if each.rho is not None and each.rho > found.rho)


def test_a_target_at_the_top_needs_one_cost() -> None:
    asked = []

    def counted(schedule: Schedule) -> float:
        asked.append(schedule.rho)
        return 1.0

    assert rho_for(plan, counted, 1.0).rho == 1.0
    assert asked == [1.0]


def test_a_target_out_of_reach_names_what_is_in_reach() -> None:
    with pytest.raises(ScheduleError, match="at least"):
        rho_for(plan, cost, 1.0)
