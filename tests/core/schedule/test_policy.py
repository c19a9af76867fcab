"""What settings mean: nothing is left open, and what they need is known."""

from dataclasses import replace
from typing import Any

import pytest

from exporter.core.base.errors import RecipeError
from exporter.core.schedule.methods import (
    INTRA,
)
from exporter.core.schedule.plan import manual_schedule
from exporter.core.schedule.policy import (
    OF_MODEL,
    Amount,
    Need,
    check_needs,
    resolve,
)
from exporter.core.schedule.prune import Prune
from exporter.core.vit.protocol import PrunableViT


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"method": "tome", "rho": 0.5}, "2 for tome"),
        ({"scorer": "intra", "rho": 0.5}, "2 for star"),
        ({"rates": {2: 0.5}}, "2 beside rates"),
    ],
)
def test_merges_that_nothing_reads_are_refused(
    settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(RecipeError, match=words):
        resolve(Prune(merges=2, **settings))


@pytest.mark.parametrize("rate", [0.5, 1.0])
def test_rates_before_the_first_layer_are_for_tokens_alone(rate: float) -> None:
    assert resolve(Prune(rates={0: rate})).amount.rates == {0: rate}
    with pytest.raises(RecipeError, match="layer 0 for star"):
        resolve(Prune("intra", rates={0: rate}))


def test_a_models_alpha_holds_unless_one_is_said(tiny_vit: PrunableViT) -> None:
    spec = replace(tiny_vit.spec, default_alpha=0.3)
    policy = resolve(Prune())
    assert (policy.alpha, policy.alpha_for(spec)) == (OF_MODEL, 0.3)
    assert resolve(Prune(alpha=0.0)).alpha_for(spec) == 0.0


def test_a_number_stands_alone_or_scales_rates(tiny_vit: PrunableViT) -> None:
    schedule = manual_schedule(
        tiny_vit.spec, {2: 0.5}, resolve(Prune("intra", seed=3, round_to=2))
    )
    assert not resolve(Prune()).amount.is_said
    assert resolve(Prune(rho=0.5)).amount == Amount(rho=0.5)
    assert resolve(Prune(rates={2: 0.5})).amount == Amount(rates={2: 0.5})
    scaled = Amount(mac_reduction=0.3, rates={2: 0.5})
    assert resolve(Prune(rates={2: 0.5}, mac_reduction=0.3)).amount == scaled
    policy = resolve(Prune(rho=0.5, seed=7), schedule)
    assert policy.amount == Amount(rho=0.5, schedule=schedule)
    assert (policy.scorer, policy.seed, policy.round_to) == (INTRA, 3, 2)


@pytest.mark.parametrize(
    ("settings", "needs"),
    [
        ({"rho": 0.5}, set()),
        ({"method": "star", "rho": 0.5}, {Need.ACS, Need.INTER}),
        ({"scorer": "intra", "rho": 0.5}, {Need.ACS}),
        ({"scorer": "intra", "rates": {2: 0.5}, "rho": 0.5}, set()),
        ({"scorer": "intra", "method": "a-star", "rho": 0.5}, {Need.ACS}),
        (
            {
                "scorer": "intra",
                "method": "a-star",
                "rates": {2: 0.5},
                "mac_reduction": 0.3,
            },
            {Need.COST},
        ),
        ({"refit": True, "rates": {2: 0.5}}, {Need.REFIT}),
    ],
)
def test_what_a_schedule_needs(settings: dict[str, Any], needs: set[Need]) -> None:
    assert resolve(Prune(**settings)).needs == needs


def test_a_schedule_of_inter_layer_scores_needs_the_same_ones(
    tiny_vit: PrunableViT,
) -> None:
    schedule = manual_schedule(tiny_vit.spec, {2: 0.5}, resolve(Prune("inter")))
    drawn = replace(schedule, inter_sha256="some digest")
    assert resolve(Prune(), drawn).needs == {Need.INTER, Need.SAME_INTER}
    assert resolve(Prune(rho=0.5), drawn).needs == {Need.INTER}


def test_the_first_need_that_nothing_meets_is_the_error() -> None:
    needs = frozenset({Need.REFIT, Need.ACS})
    with pytest.raises(
        RecipeError, match=r"--images \| got nothing \| .* to calibrate on"
    ):
        check_needs(needs, images=False, calibration=False)
    with pytest.raises(RecipeError, match=r"--images \| got nothing \| .* to refit on"):
        check_needs(needs, images=False, calibration=True)
    check_needs(needs, images=True, calibration=False)
    with pytest.raises(
        RecipeError, match=r"--calibration \| got nothing \| need the calibration"
    ):
        check_needs(frozenset({Need.SAME_INTER}), images=True, calibration=False)
    check_needs(frozenset({Need.SAME_INTER}), images=False, calibration=True)
