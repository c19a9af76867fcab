"""rho for a target."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.errors import ScheduleError
from exporter.models.registry import ModelRequest, describe
from exporter.records import Schedule
from exporter.schedule.macs import dense_macs, pruned_macs
from exporter.schedule.plan import ScheduleSettings, star_schedule
from exporter.schedule.solve import rho_for
from tests.schedule.published import DEIT_S_ACS

SPEC = describe(ModelRequest("deit_small_patch16_224")).spec


def plan(rho: float) -> Schedule:
    return star_schedule(SPEC, DEIT_S_ACS, rho, ScheduleSettings())


def cost(schedule: Schedule) -> float:
    return pruned_macs(SPEC, schedule.keep).total


@given(share=st.floats(0.2, 1.0))
def test_the_target_is_met_and_the_next_step_up_would_miss_it(share: float) -> None:
    target = share * dense_macs(SPEC).total
    schedule = rho_for(plan, cost, target)
    assert cost(schedule) <= target
    assert schedule.rho is not None
    assert schedule.rho == 1.0 or cost(plan(min(1.0, schedule.rho + 1e-8))) > target


def test_a_target_out_of_reach_names_what_is_in_reach() -> None:
    with pytest.raises(ScheduleError, match="at least"):
        rho_for(plan, cost, 1.0)
