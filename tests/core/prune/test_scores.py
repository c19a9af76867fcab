"""Scores and their factors."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from exporter.core.prune.ops.factors import class_row, directions
from exporter.core.prune.scores import (
    FACTOR_SCORES,
    SCORE_FLOOR,
    Layer,
    intra_score,
    log_fused,
    weigh_inter,
)
from exporter.core.prune.tokens import Grid, Packed, Tokens
from exporter.core.schedule.methods import (
    CLASS,
    PROBE,
    RECEIVED,
    SCORERS,
    SIMILARITY,
    Factor,
)
from exporter.core.vit.parts import AttentionPooling
from exporter.core.vit.protocol import PrunableViT
from tests.core.prune.adaptive import decided
from tests.multiply_adds import counted
from tests.vits import make_vit

ALPHA = st.floats(0.05, 0.95)


@given(alpha=ALPHA, seed=st.integers(0, 2**16))
def test_fusion_minimises_the_weighted_divergences(alpha: float, seed: int) -> None:
    """STAR, Eq. 3 and 4: argmin over p of alpha·KL(p‖intra) + (1 − alpha)·KL(p‖inter), a mean of logs."""
    intra, inter = np.random.default_rng(seed).dirichlet(np.ones(5) * 2, 2)
    fused = log_fused(
        torch.tensor(intra[None], dtype=torch.float32),
        weigh_inter(torch.tensor(inter[None]), alpha),
        alpha,
    )
    mean = alpha * np.log(intra) + (1 - alpha) * np.log(inter)
    shared = fused[0].numpy() - mean
    np.testing.assert_allclose(shared, shared.mean(), atol=1e-5)


@given(
    alpha=ALPHA,
    power=st.integers(-250, 250),
    zeros=st.integers(0, 4),
    seed=st.integers(0, 2**16),
)
def test_the_unit_of_inter_layer_scores_changes_nothing(
    alpha: float, power: int, zeros: int, seed: int
) -> None:
    """Not even where scores are smaller than the floor, or 0."""
    inter = torch.from_numpy(np.random.default_rng(seed).dirichlet(np.ones(9), 2))
    inter[:, :zeros] = 0
    table = weigh_inter(inter, alpha)
    torch.testing.assert_close(
        weigh_inter(inter * 10.0**power, alpha), table, rtol=1e-6, atol=1e-6
    )
    assert (table <= 0).all() and (table.amax(-1) == 0).all()
    floor = (1 - alpha) * math.log(SCORE_FLOOR)
    torch.testing.assert_close(table[:, :zeros], torch.full((2, zeros), floor))


def test_a_layer_without_scores_prefers_no_patch() -> None:
    assert torch.equal(weigh_inter(torch.zeros(2, 5), 0.15), torch.zeros(2, 5))


def test_a_factor_of_weight_zero_is_not_read() -> None:
    intra = torch.tensor([[0.2, 0.8]])
    assert torch.equal(log_fused(intra, None, 1.0), intra.log())
    table = torch.tensor([[0.3, 0.1]])
    assert torch.equal(log_fused(None, table, 0.0), table)


def test_where_two_tokens_classify_their_rows_count_alike() -> None:
    """By hand: two heads, a class and a distillation token, two patches; queries 0 attend evenly, to a quarter."""
    query = torch.zeros(1, 2, 4, 1)
    query[0, 0, 1] = 1.0  # the distillation token, in the first head alone
    key = torch.tensor([0.0, 0.0, 0.0, math.log(5.0)]).expand(1, 2, 4).unsqueeze(-1)
    score = intra_score(class_row(query, key, 1.0, 2), num_prefix_tokens=2)
    # That row is 1/8, 1/8, 1/8, 5/8; the other three are 1/4 throughout.
    torch.testing.assert_close(score, torch.tensor([[7 / 32, 11 / 32]]))
    alone = intra_score(class_row(query, key, 1.0, 1), num_prefix_tokens=2)
    torch.testing.assert_close(alone, torch.tensor([[1 / 4, 1 / 4]]))


KEPT = [[0, 3, 4, 7], [2], [1, 6]]
FAMILY = {"class": "registers", "received": "pooled, registers", "similarity": "pooled"}


def vit_with(factor: str) -> PrunableViT:
    return make_vit(FAMILY.get(factor, "pooled by attention"))


def grid_of(vit: PrunableViT, images: int = 3) -> Grid:
    prefix = vit.spec.num_prefix_tokens
    torch.manual_seed(0)
    return Grid(torch.randn(images, prefix + 16, vit.spec.dim), prefix)


def scored(
    vit: PrunableViT, factor: str, tokens: Tokens, stride: int = 1
) -> torch.Tensor:
    with torch.inference_mode():
        after, seen = tokens.attention(vit.blocks[1])
        return FACTOR_SCORES[factor](Layer(vit, after, seen, stride))


COSTS = (
    (CLASS, "vit", 1),
    (CLASS, "distilled", 1),
    (RECEIVED, "registers", 1),
    (RECEIVED, "registers", 4),
    (PROBE, "pe, pooled by attention", 1),
    (SIMILARITY, "registers", 1),
)


def test_every_scorer_has_its_factor_and_every_factor_its_cost() -> None:
    vit = make_vit("pooled by attention")
    names = {scorer.factor_of(vit.spec).name for scorer in SCORERS.values()}
    assert names == FACTOR_SCORES.keys() == {factor.name for factor, *_ in COSTS}


@pytest.mark.parametrize(("factor", "family", "stride"), COSTS)
def test_a_factor_costs_what_runs(factor: Factor, family: str, stride: int) -> None:
    vit = make_vit(family)
    prefix = vit.spec.num_prefix_tokens

    def runs(images: int) -> int:
        tokens, seen = grid_of(vit, images).attention(vit.blocks[0])
        if factor is SIMILARITY:  # its product of vectors is no matrix product
            return directions(seen.key, prefix).numel()
        layer = Layer(vit, tokens, seen, stride)
        return counted(lambda: FACTOR_SCORES[factor.name](layer))

    # What follows from the weights alone is computed once.
    of_an_image = runs(2) - runs(1)
    assert (
        factor.macs(vit.spec, prefix + vit.spec.num_patches, stride) == of_an_image > 0
    )


@pytest.mark.parametrize("factor", FACTOR_SCORES)
def test_an_image_alone_has_the_scores_it_has_beside_others(factor: str) -> None:
    vit = vit_with(factor)
    grid, first = grid_of(vit), decided(KEPT)
    together = scored(vit, factor, grid.reduce(first))
    packed = scored(vit, factor, Packed.of(grid, first))
    for image, kept in enumerate(KEPT):
        one = Grid(grid.values[image, None], grid.prefix).reduce(decided([kept]))
        alone = scored(vit, factor, one)[0]
        for got in (together, packed):
            torch.testing.assert_close(
                got[image, : len(kept)], alone, rtol=1e-4, atol=1e-5
            )


def test_the_attention_received_is_that_of_all_tokens_and_excludes_prefix_tokens() -> (
    None
):
    vit = vit_with("received")
    grid = grid_of(vit)
    _, seen = grid.attention(vit.blocks[1])
    whole = (seen.query @ seen.key.mT * seen.scale).softmax(-1)
    for stride in (1, 3):
        expected = whole[:, :, ::stride].mean((1, 2))[:, grid.prefix :]
        torch.testing.assert_close(scored(vit, "received", grid, stride), expected)


def test_a_model_that_pools_otherwise_has_no_probe() -> None:
    with pytest.raises(TypeError, match="no pooling by attention"):
        scored(make_vit("pooled"), "probe", grid_of(make_vit("pooled")))


@pytest.mark.parametrize("prefix", [1, 2, 5])
def test_intra_is_the_class_tokens_attention_of_the_patches(prefix: int) -> None:
    row = torch.randn(2, 3, prefix + 6)
    expected = row.softmax(-1).mean(1)[:, prefix:]
    torch.testing.assert_close(intra_score(row, prefix), expected)
    assert intra_score(row.half(), prefix).dtype == torch.float32


def test_the_probe_of_the_last_tokens_is_the_poolings_own_attention() -> None:
    vit = vit_with("probe")
    grid = grid_of(vit)
    assert isinstance(vit.pooling, AttentionPooling)
    with torch.inference_mode():
        after, seen = grid.attention(vit.blocks[1])
        logits = vit.pooling.probe(vit.norm(after.values))
        got = FACTOR_SCORES["probe"](Layer(vit, after, seen, 1))
    torch.testing.assert_close(got, logits.softmax(-1).mean(1))
    torch.testing.assert_close(got.sum(-1), torch.ones(3))
