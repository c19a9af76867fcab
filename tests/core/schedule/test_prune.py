"""Every amount becomes a schedule in one place."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from exporter.core.base.canonical_json import save_json
from exporter.core.base.errors import ScheduleError
from exporter.core.base.records import ModelSpec, Schedule
from exporter.core.base.vocabulary import Anchors, Method
from exporter.core.schedule.checks import log_oddities
from exporter.core.schedule.macs import dense_macs, pruned_macs, schedule_macs
from exporter.core.schedule.plan import (
    as_read,
    manual_schedule,
    schedule_of,
    shape_schedule,
)
from exporter.core.schedule.policy import resolve
from exporter.core.schedule.prune import Prune
from exporter.core.vit.protocol import PrunableViT
from exporter.models.registry import describe
from exporter.models.request import ModelRequest
from tests.core.schedule.published import MODELS
from tests.vits import make_vit

ACS = (0.1, 0.5, 0.3, 0.9)
INTRA = Prune("intra", reduce="drop")
TOME = Prune(method=Method.TOME)


def intra(**amount: Any) -> Prune:
    return replace(INTRA, **amount)


def told_schedule(
    settings: Prune, spec: ModelSpec, acs: Sequence[float] = ()
) -> Schedule:
    """The schedule, with what is said of it."""
    policy = resolve(settings)
    schedule = schedule_of(policy, spec, acs=acs)
    log_oddities(schedule, policy, spec)
    return schedule


def test_rho_rates_and_a_schedule(tiny_vit: PrunableViT, tmp_path: Path) -> None:
    spec = tiny_vit.spec
    # Nobody reads patches behind the last attention: what would go there stays.
    assert schedule_of(resolve(intra(rho=0.5)), spec, acs=ACS).keep == (16, 12, 11, 11)
    given = manual_schedule(spec, {2: 0.5}, resolve(INTRA))
    assert schedule_of(resolve(intra(rates={2: 0.5})), spec) == given
    assert schedule_of(resolve(Prune(), given), spec) is given
    save_json(given, tmp_path / "s.json")
    assert schedule_of(resolve(Prune(schedule=tmp_path / "s.json")), spec) == given


def test_a_number_scales_rates_and_a_schedule(tiny_vit: PrunableViT) -> None:
    rates, spec = {2: 0.8, 4: 0.6}, tiny_vit.spec.as_it_came
    for shape, given in (
        (rates, None),
        ({}, manual_schedule(spec, rates, resolve(INTRA))),
    ):
        schedule = schedule_of(resolve(intra(rho=0.2, rates=shape), given), spec)
        assert schedule.rates == pytest.approx((1.0, 0.6, 1.0, 0.2))
        saving = schedule_of(
            resolve(intra(mac_reduction=0.3, rates=shape), given), spec
        )
        assert pruned_macs(spec, saving.keep).total <= 0.7 * dense_macs(spec).total
        assert saving.pruning_layers == (2, 4)


def test_tome_follows_no_acs(tiny_vit: PrunableViT) -> None:
    spec = tiny_vit.spec
    assert schedule_of(resolve(replace(TOME, rho=0.5)), spec) == as_read(
        shape_schedule(spec, 0.5, resolve(TOME)), spec
    )
    schedule = schedule_of(resolve(replace(TOME, mac_reduction=0.3)), spec)
    assert schedule.method == Method.TOME
    # Merging counts: without it, more would be saved.
    assert pruned_macs(spec, schedule.keep).total < schedule_macs(spec, schedule).total
    assert (
        schedule_macs(spec, schedule).total <= 0.7 * dense_macs(spec.as_it_came).total
    )
    assert schedule_of(resolve(replace(TOME, rates={2: 0.5})), spec).keep == (
        16,
        8,
        8,
        8,
    )


def test_a_share_under_a_star_counts_on_images(tiny_vit: PrunableViT) -> None:
    adaptive = Prune("intra", method=Method.A_STAR, mac_reduction=0.3)
    with pytest.raises(ScheduleError, match="a-star without images"):
        schedule_of(resolve(adaptive), tiny_vit.spec, acs=ACS)

    def macs(schedule: Schedule) -> float:
        return dense_macs(tiny_vit.spec.as_it_came).total * (schedule.rho or 1.0)

    found = schedule_of(resolve(adaptive), tiny_vit.spec, acs=ACS, image_cost=macs)
    assert found.rho == pytest.approx(0.7, abs=1e-3)


def test_less_than_the_last_layer_saves_by_itself_is_one_line(
    tiny_vit: PrunableViT,
) -> None:
    spec = tiny_vit.spec
    alone = 1 - dense_macs(spec).total / dense_macs(spec.as_it_came).total
    with pytest.raises(
        ScheduleError, match=f"need more than {alone:.3f}: the last layer saves"
    ):
        schedule_of(resolve(Prune(mac_reduction=alone - 1e-3)), spec)
    assert schedule_of(resolve(Prune(mac_reduction=alone + 1e-2)), spec).pruning_layers


RISING, EARLY_PEAK = (0.1, 0.3, 0.5, 0.9), (0.1, 0.9, 0.3, 0.2)


@pytest.mark.parametrize("amount", [{"rho": 0.5}, {"mac_reduction": 0.3}], ids=str)
def test_a_rho_far_from_the_last_layers_is_one_line(
    tiny_vit: PrunableViT, caplog: pytest.LogCaptureFixture, amount: dict[str, float]
) -> None:
    for acs in (RISING, EARLY_PEAK):
        schedule = told_schedule(intra(**amount), tiny_vit.spec, acs)
    (line,) = caplog.messages
    assert (
        "first layer (at 0.00 of its range) to the last (at 0.12): layer 2 of 4" in line
    )
    assert f"{schedule.keep[-1]} of 16 patches" in line


ENDPOINTS = Prune("intra", anchors=Anchors.ENDPOINTS, reduce="drop", rho=0.5)


@pytest.mark.parametrize(
    ("settings", "acs", "told"),
    [
        (intra(rho=0.5), RISING[::-1], True),
        (intra(rho=0.5), (0.4, 0.0, 1.0, 0.6), False),
        (intra(rho=0.5), (0.6, 0.0, 1.0, 0.9), True),
        (intra(rho=0.5), (0.3,) * 4, False),
        (ENDPOINTS, EARLY_PEAK, False),
        (intra(rho=1.0), EARLY_PEAK, False),
        (intra(rates={2: 0.5}), EARLY_PEAK, False),
    ],
)
def test_either_end_of_acs_may_be_out_of_place(
    tiny_vit: PrunableViT,
    caplog: pytest.LogCaptureFixture,
    settings: Prune,
    acs: Any,
    told: bool,
) -> None:
    told_schedule(settings, tiny_vit.spec, acs)
    assert bool(caplog.messages) == told


def test_none_of_the_authors_models_is_told_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for model in MODELS.values():
        spec = describe(ModelRequest(model.name)).spec
        told_schedule(intra(rho=model.rho), spec, model.acs)
    assert not caplog.messages


def test_patches_dropped_from_what_a_head_pools_are_told_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for family, reduce, told in (
        ("pooled", "drop", 1),
        ("pooled", "merge", 0),
        ("vit", "drop", 0),
    ):
        caplog.clear()
        told_schedule(
            Prune("received", reduce=reduce, rates={2: 0.5}), make_vit(family).spec
        )
        assert len(caplog.messages) == told
        assert all("--reduce merge-weighted" in message for message in caplog.messages)


@pytest.mark.parametrize("settings", [INTRA, TOME], ids=["star", "tome"])
def test_a_share_out_of_reach_names_the_flag_and_one_that_is_not(
    tiny_vit: PrunableViT, settings: Prune
) -> None:
    def saving(share: float) -> None:
        schedule_of(
            resolve(replace(settings, mac_reduction=share)), tiny_vit.spec, acs=RISING
        )

    with pytest.raises(ScheduleError) as caught:
        saving(0.99)
    told = re.fullmatch(
        r"--mac-reduction \| got 0.99 \| need at most (0\.\d+), which .*",
        str(caught.value),
    )
    assert told is not None
    saving(float(told[1]))
    with pytest.raises(ScheduleError):
        saving(float(told[1]) + 0.001)


@pytest.mark.parametrize("amount", [{"rho": 0.5}, {"mac_reduction": 0.2}], ids=str)
def test_rates_that_a_number_scales_are_told(
    tiny_vit: PrunableViT, caplog: pytest.LogCaptureFixture, amount: dict[str, float]
) -> None:
    settings = intra(**amount, rates={2: 0.9, 4: 0.8})
    schedule = told_schedule(settings, tiny_vit.spec.as_it_came)
    (line,) = caplog.messages
    told = f"layer 2 0.9 to {schedule.rates[1]:.4g}, layer 4 0.8 to {schedule.rates[3]:.4g}"
    assert line == f"the given rates are scaled to reach the number beside them: {told}"


def test_rates_that_fit_the_number_are_not_scaled(
    tiny_vit: PrunableViT, caplog: pytest.LogCaptureFixture
) -> None:
    told_schedule(intra(rho=0.5, rates={2: 0.75, 4: 0.5}), tiny_vit.spec)
    told_schedule(intra(rates={2: 0.9}), tiny_vit.spec)
    assert not caplog.messages
