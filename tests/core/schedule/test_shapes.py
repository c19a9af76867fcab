"""Shapes: counts never rise, and every share that one patch left allows is reached or refused."""

from collections.abc import Sequence
from itertools import pairwise

import hypothesis.strategies as st
import pytest
from hypothesis import given

from exporter.core.base.records import Schedule
from exporter.core.base.vocabulary import Method
from exporter.core.schedule.macs import dense_macs, schedule_macs
from exporter.core.schedule.plan import saving_schedule, schedule_of
from exporter.core.schedule.policy import resolve
from exporter.core.schedule.prune import Prune
from exporter.core.schedule.rates import (
    Curve,
    OutOfReachError,
    counts,
    counts_for_cost,
    counts_of_rho,
    rates_of_counts,
    same_number,
    same_share,
    shaped_counts,
)
from exporter.depth.checkpoint import describe_vit
from exporter.models.request import ModelRequest

CURVES = (same_share, same_number)
CURVE = st.sampled_from(CURVES)
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
    settings=st.builds(Prune, merges=st.none() | st.integers(1, 5))
    | st.just(Prune(method=Method.TOME)),
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
        (Prune(mac_reduction=0.2), (2, 4, 6)),
        (Prune(mac_reduction=0.5), (2, 4, 6)),
        (Prune(mac_reduction=0.51), (0, 2, 4, 6)),
        (Prune(rho=0.7), (2, 4, 6)),
        (Prune(rho=0.7, merges=1), (4,)),
        (Prune(mac_reduction=0.6, merges=2), (2, 6)),
        (Prune(mac_reduction=0.75), (0, 2, 4, 6)),
        (Prune(mac_reduction=0.8), (0, 1, 2, 3, 4)),
        (Prune(method=Method.TOME, mac_reduction=0.4), range(1, 12)),
        (Prune(method=Method.TOME, rho=0.9), range(1, 12)),
    ],
)
def test_matching_merges_in_few_layers(settings: Prune, layers: Sequence[int]) -> None:
    assert schedule_of(resolve(settings), SPEC).pruning_layers == tuple(layers)


@given(patches=st.integers(2, 1024), depth=st.integers(1, 32), data=st.data())
def test_an_integer_r_is_that_of_tome(
    patches: int, depth: int, data: st.DataObject
) -> None:
    """Each layer merges r; rho is the rate of the last one."""
    r = data.draw(st.integers(0, (patches - 1) // depth))
    rho = (patches - r * depth) / (patches - r * (depth - 1))
    found = counts_of_rho(same_number, rho, patches, [True] * depth)
    assert found == tuple(patches - r * layer for layer in range(1, depth + 1))


@given(st.floats(0.01, 1.0), st.integers(1, 1024), st.integers(1, 32))
def test_rho_is_every_rate_of_the_same_share(
    rho: float, patches: int, depth: int
) -> None:
    left = counts_of_rho(same_share, rho, patches, [True] * depth)
    for layer, count in enumerate(left, start=1):
        assert abs(count - max(1.0, patches * rho**layer)) < 1 + 1e-3


def test_shapes_by_hand() -> None:
    every = [True] * 4
    # r = 2.53
    assert counts_of_rho(same_number, 0.7, 16, every) == (14, 11, 9, 6)
    assert counts_of_rho(same_number, 0.5, 16, [True, False, True, True, True]) == (
        13,
        13,
        10,
        7,
        4,
    )
    assert shaped_counts(same_share, 0.5, 16, every) == (8, 4, 2, 1)
    for curve in CURVES:
        assert counts_of_rho(curve, 1.0, 16, every) == (16,) * 4
        assert counts_of_rho(curve, 0.5, 16, [False] * 4) == (16,) * 4
