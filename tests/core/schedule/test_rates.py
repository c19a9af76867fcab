"""Rates, and the rho of a cost."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.core.base.errors import ScheduleError
from exporter.core.base.records import Schedule
from exporter.core.base.vocabulary import Anchors
from exporter.core.schedule.counts import keep_count
from exporter.core.schedule.macs import dense_macs, pruned_macs
from exporter.core.schedule.plan import star_schedule
from exporter.core.schedule.policy import resolve
from exporter.core.schedule.prune import Prune
from exporter.core.schedule.rates import (
    LEAST_RHO,
    counts,
    ends_of_acs,
    manual_rates,
    rates_from_acs,
    rho_for,
    scaled_rates,
)
from exporter.models.registry import describe
from exporter.models.request import ModelRequest
from tests.core.schedule.published import (
    DEIT_B,
    DEIT_B_COUNTS_AT_07,
    DEIT_B_RATES_AT_07,
    DEIT_S,
    MODELS,
    PublishedModel,
)

ACS = st.lists(st.floats(-1.0, 1.0), min_size=2, max_size=16)
RHO = st.floats(0.01, 1.0)


def test_the_rates_of_the_authors_code_at_one_rho_give_those_at_another() -> None:
    assert rates_from_acs(DEIT_B.acs, 0.7) == pytest.approx(
        DEIT_B_RATES_AT_07, abs=2e-5
    )


@pytest.mark.parametrize("model", MODELS.values(), ids=lambda each: each.name)
def test_the_rates_of_the_authors_code_end_at_one_and_rho(
    model: PublishedModel,
) -> None:
    """So their anchors are the smallest and the largest ACS: the first and the last layer have other rates."""
    assert (max(model.rates), min(model.rates)) == (1.0, model.rates_rho)
    assert rates_from_acs(model.acs, model.rates_rho) == pytest.approx(
        model.rates, abs=1e-6
    )


def test_our_counts_of_deit_b() -> None:
    assert counts(rates_from_acs(DEIT_B.acs, 0.7), 196) == DEIT_B_COUNTS_AT_07


@given(acs=ACS, rho=RHO)
def test_rates_lie_between_rho_and_one(acs: list[float], rho: float) -> None:
    assert all(np.float32(rho) <= rate <= 1.0 for rate in rates_from_acs(acs, rho))


def test_equal_acs_and_a_rho_of_one_keep_everything() -> None:
    assert rates_from_acs([0.3] * 5, 0.5) == (1.0,) * 5
    assert rates_from_acs(DEIT_B.acs, 1.0) == (1.0,) * 12


@given(acs=st.lists(st.integers(-99, 99), min_size=1, max_size=16))
def test_the_ends_of_acs_are_where_their_rates_say(acs: list[float]) -> None:
    first, last = ends_of_acs(acs)
    assert 0 <= min(first, last) <= max(first, last) <= 1
    rates = rates_from_acs(acs, 0.5)
    if min(acs) < max(acs):
        assert (rates[0], rates[-1]) == pytest.approx(
            (1 - 0.5 * first, 1 - 0.5 * last), abs=1e-6
        )
    else:
        assert (first, last) == (0.0, 1.0)


def test_endpoints_are_the_text_of_the_paper() -> None:
    rates = rates_from_acs([0.1, 0.0, 0.2, 0.5, 0.3], 0.6, Anchors.ENDPOINTS)
    # clipped where ACS leaves the two ends
    assert rates == pytest.approx((1.0, 1.0, 0.8, 0.6, 0.6), abs=1e-6)


def test_endpoints_need_a_rise() -> None:
    with pytest.raises(ScheduleError, match=r"layer 1 and 0\.4 at layer 3"):
        rates_from_acs([0.4, 0.9, 0.4], 0.6, Anchors.ENDPOINTS)


@pytest.mark.parametrize(
    ("acs", "message"),
    [
        ([0.1, float("nan")], "layer 2"),
        ([float("inf"), 0.2], "layer 1"),
        ([1e308, -1e308], "layer 1"),
    ],
)
def test_an_acs_that_is_no_number_names_its_layer(
    acs: list[float], message: str
) -> None:
    with pytest.raises(ScheduleError, match=message):
        rates_from_acs(acs, 0.5)


def test_manual_rates_leave_other_layers_whole() -> None:
    assert manual_rates({2: 0.5}, 3) == (1.0, 1.0, 0.5, 1.0)
    assert manual_rates({0: 0.75}, 3) == (0.75, 1.0, 1.0, 1.0)


def test_manual_rates_name_the_layer_that_is_not_there() -> None:
    with pytest.raises(ScheduleError, match=r"layer 4 \| need a layer from 0 to 3"):
        manual_rates({4: 0.5}, 3)


@given(
    rates=st.lists(st.floats(0.05, 1.0), min_size=1, max_size=12),
    patches=st.integers(1, 300),
    round_to=st.integers(1, 32),
    prefix=st.integers(0, 5),
)
def test_rounded_counts_are_multiples_or_what_was_there(
    rates: list[float], patches: int, round_to: int, prefix: int
) -> None:
    before = patches
    for rate, after in zip(
        rates, counts(rates, patches, round_to, prefix), strict=True
    ):
        least = keep_count(rate, before)
        assert least <= after <= before
        assert after == before or (
            (after + prefix) % round_to == 0 and after < least + round_to
        )
        before = after


def test_tokens_are_what_is_rounded_prefix_and_patches() -> None:
    assert counts([0.7, 0.7], 196, 8, 1) == (143, 103)  # 144 and 104 tokens


@given(st.lists(st.floats(0.01, 1.0), min_size=1, max_size=12), RHO)
def test_scaled_rates_have_the_lowest_asked_for_and_keep_proportions(
    rates: list[float], rho: float
) -> None:
    if min(rates) >= 1.0:
        with pytest.raises(ScheduleError, match="1 in every layer"):
            scaled_rates(rates, rho)
        return
    scaled = scaled_rates(rates, rho)
    assert min(scaled) == np.float32(rho)
    assert all(0.0 < rate <= 1.0 for rate in scaled)
    cut, expected = 1.0 - np.array(scaled), 1.0 - np.array(rates)
    np.testing.assert_allclose(cut * expected.max(), expected * cut.max(), atol=1e-6)


SPEC = describe(ModelRequest("deit_small_patch16_224")).spec.as_it_came


def plan(rho: float) -> Schedule:
    return star_schedule(SPEC, DEIT_S.acs, rho, resolve(Prune()))


def cost(schedule: Schedule) -> float:
    return pruned_macs(SPEC, schedule.keep).total


@given(share=st.floats(0.25, 1.0))
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
    assert (
        found.rho == 1.0 or wavy(plan(min(1.0, found.rho + 2.0**-bisections))) > target
    )
    assert all(
        wavy(point) > target
        for point in tried
        if point.rho is not None and point.rho > found.rho
    )


def test_a_target_at_the_top_needs_one_cost() -> None:
    asked = []

    def counted(schedule: Schedule) -> float:
        asked.append(schedule.rho)
        return 1.0

    assert rho_for(plan, counted, 1.0).rho == 1.0
    assert asked == [1.0]
