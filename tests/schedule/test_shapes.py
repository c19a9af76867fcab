"""Shapes: counts never rise, and every share that one patch left allows is reached or refused."""

from itertools import pairwise

import hypothesis.strategies as st
import pytest
from hypothesis import given

from exporter.depth.checkpoint import describe_vit
from exporter.errors import RecipeError, ScheduleError
from exporter.models.request import ModelRequest
from exporter.records import Schedule
from exporter.schedule.macs import dense_macs, schedule_macs
from exporter.schedule.plan import saving_schedule, schedule_of, shape_schedule
from exporter.schedule.policy import resolve
from exporter.schedule.prune import Prune
from exporter.schedule.rates import (
    SHAPES,
    OutOfReachError,
    counts,
    counts_for_cost,
    counts_of_rho,
    rates_of_counts,
    shaped_counts,
)
from exporter.vocabulary import Method

SHAPE = st.sampled_from(sorted(SHAPES))
PRUNES = st.lists(st.booleans(), min_size=1, max_size=32)
SPEC = describe_vit(ModelRequest("deit_small_patch16_224")).spec


@given(SHAPE, st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.integers(1, 1024), PRUNES)
def test_counts_fall_with_layers_and_with_steepness(
    shape: str, one: float, other: float, patches: int, prunes: list[bool]
) -> None:
    flat, steep = (
        shaped_counts(SHAPES[shape], each, patches, prunes) for each in sorted((one, other))
    )
    assert all(1 <= low <= high for low, high in zip(steep, flat, strict=True))
    before = patches
    for after, may in zip(steep, prunes, strict=True):
        assert after <= before and (may or after == before)
        before = after
    assert counts(rates_of_counts(steep, patches), patches) == steep


@given(SHAPE, st.integers(1, 1024), PRUNES)
def test_the_ends_keep_all_and_one(shape: str, patches: int, prunes: list[bool]) -> None:
    assert shaped_counts(SHAPES[shape], 0.0, patches, prunes) == (patches,) * len(prunes)
    left = shaped_counts(SHAPES[shape], 1.0, patches, prunes)[-1]
    assert left == (1 if any(prunes) else patches)


@given(SHAPE, st.integers(1, 300), PRUNES, st.floats(0.0, 1.0))
def test_a_cost_is_met_within_one_patch_of_a_layer(
    shape: str, patches: int, prunes: list[bool], share: float
) -> None:
    """The cost here is what all layers hold together; the last one that prunes holds for those behind it."""
    least = sum(shaped_counts(SHAPES[shape], 1.0, patches, prunes))
    target = least + share * (patches * len(prunes) - least)
    found = counts_for_cost(SHAPES[shape], patches, prunes, sum, target)
    assert sum(found) <= target
    falls = [after < before for before, after in pairwise((patches, *found))]
    assert not any(fall and not may for fall, may in zip(falls, prunes, strict=True))
    assert target - sum(found) < len(prunes) or found[0] == patches
    if target == patches * len(prunes):
        assert found == (patches,) * len(prunes)
    with pytest.raises(OutOfReachError):
        counts_for_cost(SHAPES[shape], patches, prunes, sum, least - 1)


@given(
    shape=SHAPE,
    share=st.floats(0.05, 0.95),
    method=st.sampled_from([Method.MATCHING, Method.TOME]),
)
def test_a_share_of_multiply_adds_is_met_within_one_token_or_refused(
    shape: str, share: float, method: Method
) -> None:
    dense = dense_macs(SPEC).total

    def cost(schedule: Schedule) -> float:
        return schedule_macs(SPEC, schedule).total

    settings = Prune(method=method, counts=shape)
    target = (1.0 - share) * dense

    def saving(target: float) -> Schedule:
        return saving_schedule(SPEC, target, resolve(settings), SHAPES[shape], cost=cost)

    try:
        schedule = saving(target)
    except OutOfReachError as error:
        assert error.least > target
        assert saving(error.least).keep[-1] == 1
        return
    assert 0 <= target - cost(schedule) <= dense / (SPEC.num_patches + SPEC.num_prefix_tokens)
    assert schedule.keep[SPEC.lone_layer - 1] == schedule.keep[SPEC.lone_layer - 2]


@given(patches=st.integers(2, 1024), depth=st.integers(1, 32), data=st.data())
def test_an_integer_r_is_that_of_tome(patches: int, depth: int, data: st.DataObject) -> None:
    """Each layer merges r; rho is the rate of the last one."""
    r = data.draw(st.integers(0, (patches - 1) // depth))
    rho = (patches - r * depth) / (patches - r * (depth - 1))
    found = counts_of_rho(SHAPES["constant"], rho, patches, [True] * depth)
    assert found == tuple(patches - r * layer for layer in range(1, depth + 1))


@given(st.floats(0.01, 1.0), st.integers(1, 1024), st.integers(1, 32))
def test_rho_is_every_rate_of_the_geometric_shape(rho: float, patches: int, depth: int) -> None:
    found = counts_of_rho(SHAPES["geometric"], rho, patches, [True] * depth)
    for layer, left in enumerate(found, start=1):
        assert abs(left - max(1.0, patches * rho**layer)) < 1 + 1e-3


def test_shapes_by_hand() -> None:
    every = [True] * 4
    assert counts_of_rho(SHAPES["constant"], 0.7, 16, every) == (14, 11, 9, 6)  # r = 2.53
    assert counts_of_rho(SHAPES["constant"], 0.5, 16, [True, False, True, True, True]) == (
        13,
        13,
        10,
        7,
        4,
    )
    assert shaped_counts(SHAPES["linear"], 0.25, 16, every) == (12, 9, 7, 6)
    assert shaped_counts(SHAPES["geometric"], 0.5, 16, every) == (8, 4, 2, 1)
    assert shaped_counts(SHAPES["few"], 0.5, 16, [True] * 12) == (
        16,
        16,
        16,
        8,
        8,
        8,
        4,
        4,
        4,
        2,
        2,
        2,
    )
    for shape in SHAPES.values():
        assert counts_of_rho(shape, 1.0, 16, every) == (16,) * 4
        assert counts_of_rho(shape, 0.5, 16, [False] * 4) == (16,) * 4


def test_counts_are_a_choice_of_their_own() -> None:
    star = Prune("intra", method=Method.STAR, counts="geometric", mac_reduction=0.6)
    assert schedule_of(resolve(star), SPEC).acs is None
    with pytest.raises(ScheduleError, match="search without images"):
        schedule_of(resolve(Prune(counts="search", mac_reduction=0.6)), SPEC)
    with pytest.raises(RecipeError, match="geometric for a-star"):
        resolve(Prune(method=Method.A_STAR, counts="geometric"))
    with pytest.raises(RecipeError, match="beside rates"):
        resolve(Prune(counts="geometric", rates={2: 0.5}))


def test_a_shape_keeps_the_digest_of_the_scores_it_prunes_by() -> None:
    for scorer, digest in (("fused", "abc"), ("intra", "")):
        settings = Prune(scorer, method=Method.STAR, counts="geometric", reduce="drop")
        assert shape_schedule(SPEC, 0.7, resolve(settings), "abc").inter_sha256 == digest
