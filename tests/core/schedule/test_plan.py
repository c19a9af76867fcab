"""Schedules made and checked."""

from dataclasses import replace

import pytest

from exporter.core.base.errors import RecipeError, ScheduleError
from exporter.core.base.vocabulary import Anchors, Method
from exporter.core.schedule.checks import check_fits, log_oddities
from exporter.core.schedule.plan import (
    manual_schedule,
    schedule_of,
    shape_schedule,
    star_schedule,
)
from exporter.core.schedule.policy import resolve
from exporter.core.schedule.prune import Prune
from exporter.core.vit.protocol import PrunableViT
from tests.vits import cut_vit

TOME = Prune(method=Method.TOME)


def test_check_fits_names_the_layer(tiny_vit: PrunableViT) -> None:
    good = manual_schedule(tiny_vit.spec, {2: 0.5}, resolve(Prune()))
    check_fits(good, tiny_vit.spec)
    for bad, message in (
        (replace(good, keep=(16, 8, 9, 8)), "layer 3"),
        (replace(good, num_patches=17), "17 patches"),
        (replace(good, embedded=17), "embedded | got 17"),
        (replace(good, embedded=10), r"layer 1 | got 16 patches"),
        (replace(good, embedded=8, method=Method.STAR, scorer="intra"), "layer 0"),
        (replace(good, round_to=4), r"8 patches \| need 11"),
        (replace(good, rates=good.rates[:3], keep=good.keep[:3]), "3 layers"),
    ):
        with pytest.raises(ScheduleError, match=message):
            check_fits(bad, tiny_vit.spec)


def test_a_schedule_whose_choices_do_not_go_together_does_not_fit(
    tiny_vit: PrunableViT,
) -> None:
    good = shape_schedule(tiny_vit.spec, 0.5, resolve(TOME))
    for bad in (
        replace(good, reduce="drop"),
        replace(good, scorer="intra"),
        replace(good, scorer="attention"),
        replace(good, method=Method.A_STAR),
    ):
        with pytest.raises(RecipeError, match=r"for tome|for a-star|got 'attention' "):
            check_fits(bad, tiny_vit.spec)


ACS = [0.1, 0.5, 0.3, 0.9]


def test_star_schedule_holds_what_it_was_made_from(tiny_vit: PrunableViT) -> None:
    schedule = star_schedule(tiny_vit.spec, ACS, 0.5, resolve(Prune(reduce="drop")))
    assert (schedule.scorer, schedule.reduce) == ("fused", "drop")
    assert schedule.keep == (16, 12, 11, 6)
    assert schedule.rho == 0.5
    assert schedule.acs == tuple(ACS)
    assert schedule.pruning_layers == (2, 3, 4)


def test_the_number_of_acs_values_must_be_the_depth(tiny_vit: PrunableViT) -> None:
    with pytest.raises(ScheduleError, match=r"got 3 values \| need 4"):
        star_schedule(tiny_vit.spec, ACS[:3], 0.5, resolve(Prune()))


def test_rounded_counts_fit_and_say_so(tiny_vit: PrunableViT) -> None:
    schedule = star_schedule(tiny_vit.spec, ACS, 0.5, resolve(Prune(round_to=4)))
    assert schedule.keep == (16, 15, 15, 11)  # with the class token, multiples of 4
    assert schedule.round_to == 4
    check_fits(schedule, tiny_vit.spec)


def test_tome_passes_over_a_layer_without_attention() -> None:
    assert shape_schedule(cut_vit().spec, 0.5, resolve(TOME)).keep == (13, 13, 10, 7, 4)


def test_defaults_are_those_of_the_method() -> None:
    for settings, chosen in (
        (Prune(), ("token-pairs", "merge-weighted")),
        (Prune(reduce="drop"), ("fused", "drop")),
        (Prune(reduce="merge"), ("token-pairs", "merge")),
        (Prune(alpha=0.3), ("fused", "drop")),
        (Prune(anchors=Anchors.ENDPOINTS), ("fused", "drop")),
        (Prune(method=Method.STAR), ("fused", "drop")),
        (Prune(method=Method.STAR, reduce="merge"), ("fused", "merge")),
        (Prune("pairs", method=Method.STAR), ("pairs", "merge-weighted")),
        (Prune(method=Method.A_STAR), ("fused", "drop")),
        (TOME, ("pairs", "merge-weighted")),
        (Prune("intra", method=Method.A_STAR), ("intra", "drop")),
        (Prune("intra", reduce="merge"), ("intra", "merge")),
    ):
        policy = resolve(settings)
        assert (policy.scorer.name, policy.reduction.name) == chosen


def test_rates_to_scale_are_one_for_each_layer(tiny_vit: PrunableViT) -> None:
    good = manual_schedule(tiny_vit.spec, {2: 0.5}, resolve(Prune()))
    short = replace(good, rates=good.rates[:3], keep=good.keep[:3])
    with pytest.raises(ScheduleError, match=r"got 3 rates \| need 4"):
        schedule_of(resolve(Prune(rho=0.5), short), tiny_vit.spec)
    with pytest.raises(ScheduleError, match="without attention"):
        schedule_of(resolve(Prune(rho=0.5, rates={2: 0.5})), cut_vit().spec)


@pytest.mark.parametrize("layers", [(4,), (2,), (2, 4)])
def test_what_is_dropped_where_nobody_reads_it_stays_unless_it_is_all(
    tiny_vit: PrunableViT, layers: tuple[int, ...]
) -> None:
    assert tiny_vit.spec.lone_layer == 4
    policy = resolve(Prune(rates=dict.fromkeys(layers, 0.5)))
    schedule = schedule_of(policy, tiny_vit.spec)
    pruned = layers if layers == (4,) else (2,)
    assert schedule.pruning_layers == pruned
    assert schedule.rates == tuple(
        0.5 if layer in pruned else 1.0 for layer in range(1, 5)
    )
    check_fits(schedule, tiny_vit.spec)


def test_a_given_rate_that_drops_nothing_is_said(
    tiny_vit: PrunableViT, caplog: pytest.LogCaptureFixture
) -> None:
    for rates in ({4: 0.5}, {2: 0.5}, {2: 0.5, 4: 1.0}):
        policy = resolve(Prune(rates=rates))
        log_oddities(schedule_of(policy, tiny_vit.spec), policy, tiny_vit.spec)
    assert not caplog.messages
    policy = resolve(Prune(rates={2: 0.5, 4: 0.25}))
    log_oddities(schedule_of(policy, tiny_vit.spec), policy, tiny_vit.spec)
    assert caplog.messages == [
        "layer 4 keeps its patches, whatever its rate, 0.25: it computes the tokens alone that the head reads"
    ]


def test_a_rho_that_several_layers_keep_is_warned_of_where_it_saves_much(
    tiny_vit: PrunableViT, caplog: pytest.LogCaptureFixture
) -> None:
    spec = tiny_vit.spec
    for settings in (
        Prune(rho=0.95),
        Prune(mac_reduction=0.65),
        Prune(method=Method.TOME, rho=0.3),
    ):
        policy = resolve(settings)
        log_oddities(schedule_of(policy, spec), policy, spec)
    assert not caplog.messages
    policy = resolve(Prune(rho=0.3))
    log_oddities(schedule_of(policy, spec), policy, spec)
    assert caplog.messages == [
        "2 layers keep the share rho, 0.3: that saves 68 % of the multiply-adds; --mac-reduction sets "
        "this share, and star and tome give rho to their lowest layer alone"
    ]
