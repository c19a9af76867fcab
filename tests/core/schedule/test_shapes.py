"""Shapes: counts never rise, and every share that one patch left allows is reached or refused."""

from dataclasses import replace
from itertools import pairwise

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from exporter.core.base.errors import RecipeError
from exporter.core.base.records import Schedule
from exporter.core.base.vocabulary import Method
from exporter.core.schedule.macs import dense_macs, schedule_macs
from exporter.core.schedule.plan import saving_schedule, schedule_of
from exporter.core.schedule.policy import resolve
from exporter.core.schedule.prune import Prune
from exporter.core.schedule.rates import (
    SHAPES,
    Curve,
    OutOfReachError,
    counts,
    counts_for_cost,
    counts_of_rho,
    exponent_for,
    first_layers,
    rates_of_counts,
    shaped_counts,
    stretched,
)
from exporter.depth.checkpoint import describe_vit
from exporter.models.request import ModelRequest
from tests.calibration.samples import acs_of

EXPONENT = st.floats(0.0, 1.0, exclude_min=True)
CURVE = st.just(SHAPES["constant"]) | EXPONENT.map(stretched)
PRUNES = st.lists(st.booleans(), min_size=1, max_size=32)
SPEC = describe_vit(ModelRequest("deit_small_patch16_224")).spec


@given(CURVE, st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.integers(1, 1024), PRUNES)
def test_counts_fall_with_layers_and_with_steepness(
    curve: Curve, one: float, other: float, patches: int, prunes: list[bool]
) -> None:
    flat, steep = (
        shaped_counts(curve, each, patches, prunes) for each in sorted((one, other))
    )
    assert all(1 <= low <= high for low, high in zip(steep, flat, strict=True))
    before = patches
    for after, may in zip(steep, prunes, strict=True):
        assert after <= before and (may or after == before)
        before = after
    assert counts(rates_of_counts(steep, patches), patches) == steep


@given(CURVE, st.integers(1, 1024), PRUNES)
def test_the_ends_keep_all_and_one(
    curve: Curve, patches: int, prunes: list[bool]
) -> None:
    assert shaped_counts(curve, 0.0, patches, prunes) == (patches,) * len(prunes)
    left = shaped_counts(curve, 1.0, patches, prunes)[-1]
    assert left == (1 if any(prunes) else patches)


@given(CURVE, st.integers(1, 300), PRUNES, st.floats(0.0, 1.0))
def test_a_cost_is_met_within_one_patch_of_a_layer(
    curve: Curve, patches: int, prunes: list[bool], share: float
) -> None:
    """The cost here is what all layers hold together; the last one that prunes holds for those behind it."""
    least = sum(shaped_counts(curve, 1.0, patches, prunes))
    target = least + share * (patches * len(prunes) - least)
    found = counts_for_cost(curve, patches, prunes, sum, target)
    assert sum(found) <= target
    falls = [after < before for before, after in pairwise((patches, *found))]
    assert not any(fall and not may for fall, may in zip(falls, prunes, strict=True))
    assert target - sum(found) < len(prunes) or found[0] == patches
    if target == patches * len(prunes):
        assert found == (patches,) * len(prunes)
    with pytest.raises(OutOfReachError):
        counts_for_cost(curve, patches, prunes, sum, least - 1)


@given(
    settings=st.builds(Prune, method=st.just(Method.MATCHING), exponent=EXPONENT)
    | st.builds(
        Prune, method=st.just(Method.TOME), counts=st.sampled_from(sorted(SHAPES))
    ),
    share=st.floats(0.05, 0.95),
)
def test_a_share_of_multiply_adds_is_met_within_one_token_or_refused(
    settings: Prune, share: float
) -> None:
    dense = dense_macs(SPEC).total

    def cost(schedule: Schedule) -> float:
        return schedule_macs(SPEC, schedule).total

    target = (1.0 - share) * dense

    def saving(target: float) -> Schedule:
        return saving_schedule(SPEC, target, resolve(settings), cost=cost)

    try:
        schedule = saving(target)
    except OutOfReachError as error:
        assert error.least > target
        assert saving(error.least).keep[-1] == 1
        return
    assert (
        0
        <= target - cost(schedule)
        <= dense / (SPEC.num_patches + SPEC.num_prefix_tokens)
    )
    assert schedule.keep[SPEC.lone_layer - 1] == schedule.keep[SPEC.lone_layer - 2]


@pytest.mark.parametrize(
    ("settings", "layers"),
    [
        (Prune(mac_reduction=0.4), range(1, 8)),
        (Prune(mac_reduction=0.8), range(8)),
        (Prune(rho=0.9), range(1, 8)),
        (Prune(method=Method.TOME, counts="stretched", rho=0.9), range(1, 8)),
        (Prune(method=Method.TOME, mac_reduction=0.4), range(1, 12)),
        (Prune(method=Method.TOME, rho=0.9), range(1, 12)),
    ],
)
def test_stretched_counts_fall_in_the_first_layers_alone(
    settings: Prune, layers: range
) -> None:
    schedule = schedule_of(resolve(settings), SPEC)
    assert schedule.pruning_layers == tuple(layers)


@pytest.mark.parametrize(("layers", "first"), [(1, 1), (2, 1), (5, 3), (11, 7)])
def test_the_first_layers_are_three_fifths_of_those_that_may_prune(
    layers: int, first: int
) -> None:
    may = range(2, 2 + layers)
    assert list(first_layers(may)) == list(may[:first])


@given(patches=st.integers(2, 1024), depth=st.integers(1, 32), data=st.data())
def test_an_integer_r_is_that_of_tome(
    patches: int, depth: int, data: st.DataObject
) -> None:
    """Each layer merges r; rho is the rate of the last one."""
    r = data.draw(st.integers(0, (patches - 1) // depth))
    rho = (patches - r * depth) / (patches - r * (depth - 1))
    found = counts_of_rho(SHAPES["constant"], rho, patches, [True] * depth)
    assert found == tuple(patches - r * layer for layer in range(1, depth + 1))


@given(st.floats(0.01, 1.0), EXPONENT, st.integers(1, 1024), st.integers(1, 32))
def test_rho_is_the_first_rate_of_stretched_counts(
    rho: float, exponent: float, patches: int, depth: int
) -> None:
    """By an exponent of 1 it is every rate."""
    found = counts_of_rho(stretched(exponent), rho, patches, [True] * depth)
    for layer, left in enumerate(found, start=1):
        assert abs(left - max(1.0, patches * rho ** (layer**exponent))) < 1 + 1e-3


@given(st.floats(0.0, 1.0), st.integers(1, 1024), PRUNES)
def test_an_exponent_of_one_is_the_geometric_sequence(
    steepness: float, patches: int, prunes: list[bool]
) -> None:
    def geometric(steepness: float, layer: int) -> float:
        return float((1.0 - steepness) ** layer)

    same = shaped_counts(geometric, steepness, patches, prunes)
    assert shaped_counts(stretched(1.0), steepness, patches, prunes) == same


@given(st.floats(0.41, 0.9), st.floats(0.41, 0.9))
def test_the_more_is_saved_the_lower_the_exponent(one: float, other: float) -> None:
    less, more = sorted((one, other))
    assert 0.0 < exponent_for(more) <= exponent_for(less) <= 1.0


def test_a_lower_exponent_leaves_more_to_the_last_layers_at_equal_cost() -> None:
    def left(exponent: float) -> tuple[int, ...]:
        return counts_for_cost(stretched(exponent), 64, [True] * 11, sum, 240)

    assert left(1.0)[0] > left(0.8)[0] > left(0.6)[0]
    assert left(1.0)[-1] < left(0.8)[-1] < left(0.6)[-1]


def test_shapes_by_hand() -> None:
    every = [True] * 4
    # r = 2.53
    assert counts_of_rho(SHAPES["constant"], 0.7, 16, every) == (14, 11, 9, 6)
    assert counts_of_rho(
        SHAPES["constant"], 0.5, 16, [True, False, True, True, True]
    ) == (13, 13, 10, 7, 4)
    assert shaped_counts(SHAPES["stretched"], 0.5, 16, every) == (8, 4, 2, 1)
    assert shaped_counts(stretched(0.5), 0.5, 16, every) == (8, 7, 5, 4)  # 16 · 0.5^√l
    for shape in SHAPES.values():
        assert counts_of_rho(shape, 1.0, 16, every) == (16,) * 4
        assert counts_of_rho(shape, 0.5, 16, [False] * 4) == (16,) * 4


def test_counts_are_a_choice_of_their_own() -> None:
    star = Prune("intra", method=Method.STAR, counts="stretched", mac_reduction=0.6)
    assert schedule_of(resolve(star), SPEC).acs is None
    with pytest.raises(RecipeError, match="stretched for a-star"):
        resolve(Prune(method=Method.A_STAR, counts="stretched"))
    with pytest.raises(RecipeError, match="beside rates"):
        resolve(Prune(counts="stretched", rates={2: 0.5}))


def test_a_shape_keeps_the_digest_of_the_scores_it_prunes_by() -> None:
    scores = np.ones((SPEC.depth, SPEC.num_patches))
    made = replace(acs_of(SPEC, [0.5] * SPEC.depth), inter=scores)
    for scorer, digest in (("fused", made.inter_sha256), ("intra", "")):
        settings = Prune(
            scorer, 0.7, method=Method.STAR, counts="stretched", reduce="drop"
        )
        assert schedule_of(resolve(settings), SPEC, made).inter_sha256 == digest
