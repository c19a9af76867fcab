"""Every amount becomes a schedule in one place."""

import re

import pytest

from exporter.errors import ScheduleError
from exporter.models.base import PrunableViT
from exporter.models.registry import ModelRequest, describe
from exporter.records import Schedule
from exporter.schedule.macs import dense_macs, pruned_macs, schedule_macs
from exporter.schedule.plan import ScheduleSettings, as_read, manual_schedule, tome_schedule
from exporter.vocabulary import Method
from exporter.workflows.recipes.amount import Given, MacShare, Rates, Rho
from exporter.workflows.recipes.planning import Planner, plan
from tests.schedule.published import MODELS
from tests.vits import make_vit

ACS = (0.1, 0.5, 0.3, 0.9)
INTRA = ScheduleSettings("intra", reduce="drop")


def test_rho_rates_and_a_schedule(tiny_vit: PrunableViT) -> None:
    planner = Planner(tiny_vit.spec, INTRA, ACS)
    # Nobody reads patches behind the last attention: what would go there stays.
    assert plan(Rho(0.5), planner).keep == (16, 12, 11, 11)
    given = manual_schedule(tiny_vit.spec, {2: 0.5}, INTRA)
    assert plan(Rates({2: 0.5}), Planner(tiny_vit.spec, INTRA)) == given
    assert plan(Given(given), planner) is given


def test_a_share_of_the_macs(tiny_vit: PrunableViT) -> None:
    spec = tiny_vit.spec
    schedule = plan(MacShare(0.3), Planner(spec, INTRA, ACS))
    assert pruned_macs(spec, schedule.keep).total <= 0.7 * dense_macs(spec).total


def test_a_number_scales_rates_and_a_schedule(tiny_vit: PrunableViT) -> None:
    rates, spec = Rates({2: 0.8, 4: 0.6}), tiny_vit.spec
    given = Given(manual_schedule(spec, rates.rates, INTRA))
    for shape in (rates, given):
        planner = Planner.of(spec, INTRA, None, shape)
        schedule = plan(Rho(0.2), planner)
        assert schedule.rates == pytest.approx((1.0, 0.6, 1.0, 0.2))
        saving = plan(MacShare(0.3), planner)
        assert pruned_macs(spec, saving.keep).total <= 0.7 * dense_macs(spec).total
        assert saving.pruning_layers == (2, 4)


def test_tome_follows_no_acs(tiny_vit: PrunableViT) -> None:
    spec, scoring = tiny_vit.spec, ScheduleSettings(method=Method.TOME)
    planner = Planner(spec, scoring)
    assert plan(Rho(0.5), planner) == as_read(tome_schedule(spec, 0.5, scoring), spec)
    schedule = plan(MacShare(0.2), planner)
    assert schedule.method == Method.TOME
    # Merging counts: without it, more would be saved.
    assert pruned_macs(spec, schedule.keep).total < schedule_macs(spec, schedule).total
    assert schedule_macs(spec, schedule).total <= 0.8 * dense_macs(spec).total
    assert plan(Rates({2: 0.5}), planner).keep == (16, 8, 8, 8)


def test_counts_are_a_choice_of_their_own() -> None:
    spec = describe(ModelRequest("deit_small_patch16_224")).spec
    shapes = {
        counts: plan(MacShare(0.6), Planner(spec, ScheduleSettings(counts=counts)))
        for counts in ("constant", "linear", "geometric", "few")
    }
    assert len({schedule.keep for schedule in shapes.values()}) == len(shapes)
    for schedule in shapes.values():
        saved = 1 - schedule_macs(spec, schedule).total / dense_macs(spec).total
        assert 0.6 <= saved < 0.605
    star = Planner(spec, ScheduleSettings("intra", method=Method.STAR, counts="geometric"))
    assert plan(MacShare(0.6), star).acs is None
    with pytest.raises(ScheduleError, match="search without images"):
        plan(MacShare(0.6), Planner(spec, ScheduleSettings(counts="search")))


def test_a_share_under_a_star_counts_on_images(tiny_vit: PrunableViT) -> None:
    planner = Planner(tiny_vit.spec, ScheduleSettings("intra", method=Method.A_STAR), ACS)
    with pytest.raises(ScheduleError, match="a-star without images"):
        plan(MacShare(0.3), planner)

    def macs(schedule: Schedule) -> float:
        return dense_macs(tiny_vit.spec).total * (schedule.rho or 1.0)

    assert plan(MacShare(0.3), planner, image_macs=macs).rho == pytest.approx(0.7, abs=1e-3)


def test_acs_is_wanted_where_rates_follow_it(tiny_vit: PrunableViT) -> None:
    with pytest.raises(ScheduleError, match=r"ACS \| got 0 values \| need 4"):
        plan(Rho(0.5), Planner(tiny_vit.spec, INTRA))


def test_a_schedule_of_another_model(tiny_vit: PrunableViT) -> None:
    given = manual_schedule(tiny_vit.spec, {2: 0.5}, INTRA)
    other = Schedule(**{**vars(given), "num_patches": 17})
    with pytest.raises(ScheduleError, match="17 patches"):
        plan(Given(other), Planner(tiny_vit.spec, INTRA))


RISING, EARLY_PEAK = (0.1, 0.3, 0.5, 0.9), (0.1, 0.9, 0.3, 0.2)


@pytest.mark.parametrize("amount", [Rho(0.5), MacShare(0.1)], ids=lambda each: type(each).__name__)
def test_a_rho_far_from_the_last_layers_is_one_line(
    tiny_vit: PrunableViT, caplog: pytest.LogCaptureFixture, amount: Rho | MacShare
) -> None:
    for acs in (RISING, EARLY_PEAK):
        planner = Planner(tiny_vit.spec, INTRA, acs)
        schedule = plan(amount, planner)
    (line,) = caplog.messages
    assert "first layer (at 0.00 of its range) to the last (at 0.12): layer 2 of 4" in line
    assert f"{schedule.keep[-1]} of 16 patches" in line


@pytest.mark.parametrize(
    ("acs", "told"),
    [(RISING[::-1], True), ((0.4, 0.0, 1.0, 0.6), False), ((0.6, 0.0, 1.0, 0.9), True), ((0.3,) * 4, False)],
)
def test_either_end_of_acs_may_be_out_of_place(
    tiny_vit: PrunableViT, caplog: pytest.LogCaptureFixture, acs: tuple[float, ...], told: bool
) -> None:
    plan(Rho(0.5), Planner(tiny_vit.spec, INTRA, acs))
    assert bool(caplog.messages) == told


def test_nothing_is_told_where_acs_puts_rho_nowhere_else(
    tiny_vit: PrunableViT, caplog: pytest.LogCaptureFixture
) -> None:
    endpoints = ScheduleSettings("intra", anchors="endpoints", reduce="drop")
    plan(Rho(0.5), Planner(tiny_vit.spec, endpoints, EARLY_PEAK))
    plan(Rho(1.0), Planner(tiny_vit.spec, INTRA, EARLY_PEAK))
    plan(Rates({2: 0.5}), Planner(tiny_vit.spec, INTRA, EARLY_PEAK))
    made = Planner(tiny_vit.spec, INTRA, EARLY_PEAK).of_rho(0.5)
    plan(Given(made), Planner(tiny_vit.spec, INTRA))
    assert not caplog.messages


def test_none_of_the_authors_models_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    for model in MODELS.values():
        spec = describe(ModelRequest(model.name)).spec
        plan(Rho(model.rho), Planner(spec, INTRA, model.acs))
    assert not caplog.messages


def test_patches_dropped_from_what_a_head_pools_are_told_of(caplog: pytest.LogCaptureFixture) -> None:
    for family, reduce, told in (("pooled", "drop", 1), ("pooled", "merge", 0), ("vit", "drop", 0)):
        caplog.clear()
        settings = ScheduleSettings("received", reduce=reduce)
        plan(Rates({2: 0.5}), Planner(make_vit(family).spec, settings))
        assert len(caplog.messages) == told
        assert all("--reduce merge-weighted" in message for message in caplog.messages)


@pytest.mark.parametrize("settings", [INTRA, ScheduleSettings(method=Method.TOME)], ids=["star", "tome"])
def test_a_share_out_of_reach_names_the_flag_and_one_that_is_not(
    tiny_vit: PrunableViT, settings: ScheduleSettings
) -> None:
    planner = Planner(tiny_vit.spec, settings, RISING)
    with pytest.raises(ScheduleError) as caught:
        plan(MacShare(0.99), planner)
    told = re.fullmatch(r"--mac-reduction \| got 0.99 \| need at most (0\.\d+), which .*", str(caught.value))
    assert told is not None
    plan(MacShare(float(told[1])), planner)
    with pytest.raises(ScheduleError):
        plan(MacShare(float(told[1]) + 0.001), planner)


@pytest.mark.parametrize("amount", [Rho(0.5), MacShare(0.2)], ids=["rho", "mac_reduction"])
def test_rates_that_a_number_scales_are_told(
    tiny_vit: PrunableViT, caplog: pytest.LogCaptureFixture, amount: Rho | MacShare
) -> None:
    planner = Planner.of(tiny_vit.spec, INTRA, None, Rates({2: 0.9, 4: 0.8}))
    schedule = plan(amount, planner)
    (line,) = caplog.messages
    told = f"layer 2 0.9 to {schedule.rates[1]:.4g}, layer 4 0.8 to {schedule.rates[3]:.4g}"
    assert line == f"the given rates are scaled to reach the number beside them: {told}"


def test_rates_that_fit_the_number_are_not_scaled(
    tiny_vit: PrunableViT, caplog: pytest.LogCaptureFixture
) -> None:
    plan(Rho(0.5), Planner.of(tiny_vit.spec, INTRA, None, Rates({2: 0.75, 4: 0.5})))
    plan(Rates({2: 0.9}), Planner.of(tiny_vit.spec, INTRA, None, Rates({2: 0.9})))
    assert not caplog.messages
