"""Scores and their factors."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from torch._library.custom_ops import OPDEFS
from torch.utils._python_dispatch import TorchDispatchMode
from typing_extensions import override

from exporter.core.prune.ops.factors import class_row
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.prune.scores import (
    FACTOR_SCORES,
    SCORE_FLOOR,
    Layer,
    intra_score,
    log_fused,
    weigh_inter,
)
from exporter.core.prune.tokens import Grid, Packed, Tokens
from exporter.core.schedule.methods import SCORERS, Scorer
from exporter.core.schedule.plan import manual_schedule
from exporter.core.schedule.policy import resolve
from exporter.core.schedule.prune import Prune
from exporter.core.vit.parts import AttentionPooling
from exporter.core.vit.protocol import PrunableViT
from tests.core.prune.adaptive import decided
from tests.vits import make_vit, random_images

ALPHA = st.floats(0.05, 0.95)


@given(alpha=ALPHA, seed=st.integers(0, 2**16))
def test_fusion_minimises_the_weighted_divergences(alpha: float, seed: int) -> None:
    """STAR, Eq. 3 and 4: argmin over p of alpha·KL(p‖intra) + (1 − alpha)·KL(p‖inter)."""
    generator = np.random.default_rng(seed)
    intra, inter = generator.dirichlet(np.ones(5) * 2, 2)
    fused = log_fused(
        torch.tensor(intra[None], dtype=torch.float32),
        weigh_inter(torch.tensor(inter[None]), alpha),
        alpha,
    )
    closed = fused[0].double().softmax(-1).numpy()

    def objective(logits: np.ndarray) -> float:
        p = np.exp(logits - logits.max())
        p /= p.sum()
        return float(
            (
                p * (np.log(p) - alpha * np.log(intra) - (1 - alpha) * np.log(inter))
            ).sum()
        )

    numeric = minimize(objective, np.zeros(5), method="BFGS", options={"gtol": 1e-9})
    assert objective(np.log(closed)) <= numeric.fun + 1e-7
    p = np.exp(numeric.x - numeric.x.max())
    assert closed == pytest.approx(p / p.sum(), abs=2e-4)


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


def test_zeros_stay_finite_and_rank_last() -> None:
    scores = log_fused(
        torch.tensor([[0.0, 0.5, 0.5]]),
        weigh_inter(torch.tensor([[0.5, 0.0, 0.5]]), 0.15),
        0.15,
    )
    assert torch.isfinite(scores).all()
    assert scores[0].argmax() == 2


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


def test_every_scorer_has_its_factor() -> None:
    vit = make_vit("pooled by attention")
    assert {
        scorer.factor_of(vit.spec).name for scorer in SCORERS.values()
    } == FACTOR_SCORES.keys()


class MultiplyAdds(TorchDispatchMode):
    """Counts those of matrix products, of products by elements and of norms, inside our operators too."""

    total = 0

    @override
    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func.namespace == "star":
            with self:
                return OPDEFS[func.name()]._init_fn(*args, **(kwargs or {}))
        result = func(*args, **(kwargs or {}))
        aten = torch.ops.aten
        if func.overloadpacket in (aten.mm, aten.bmm, aten.matmul):
            self.total += result.numel() * args[0].shape[-1]
        elif func.overloadpacket is aten.addmm:
            self.total += result.numel() * args[1].shape[-1]
        elif func.overloadpacket is aten.mul:
            self.total += result.numel()
        elif func.overloadpacket is aten.linalg_vector_norm:
            self.total += args[0].numel()
        return result


@pytest.mark.parametrize("stride", [1, 3])
@pytest.mark.parametrize(
    "scorer",
    [scorer for scorer in SCORERS.values() if scorer.factor],
    ids=lambda scorer: scorer.name,
)
def test_the_multiply_adds_are_those_that_run(scorer: Scorer, stride: int) -> None:
    """Up to twice as many run: scaling and norms count as nothing, but cost less than the product.

    A large batch, since the probe's query and key projection are multiplied once for all images.
    """
    vit = vit_with("class" if scorer.name == "intra" else scorer.name)
    factor = scorer.factor_of(vit.spec)
    tokens = grid_of(vit, images=64)
    with torch.no_grad():
        after, seen = tokens.attention(vit.blocks[1])
        with MultiplyAdds() as counter:
            FACTOR_SCORES[factor.name](Layer(vit, after, seen, stride))
    counted = counter.total / len(tokens.values)
    stated = factor.macs(vit.spec, tokens.values.shape[1], stride)
    assert stated <= counted <= 2 * stated


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


def test_merging_keeps_the_mean_over_all_patches() -> None:
    """Of tokens that no block changes: a merged token is the mean of its patches, and counts as often."""
    vit = make_vit("pooled")
    grid = grid_of(vit)
    with torch.inference_mode():
        settings = Prune("received", reduce="merge")
        pruned = PrunedViT(
            vit, manual_schedule(vit.spec, {1: 0.5, 3: 0.5}, resolve(settings))
        )
        decisions = pruned.trace(random_images(vit, 3)).decisions
        merged = grid
        for decision in decisions.values():
            merged = merged.reduce(decision)
        assert merged.sizes is not None and vit.pooling is not None
        pooled = vit.pooling(merged.values, merged.sizes)
        dropped = vit.pooling(merged.values, torch.ones_like(merged.sizes))
    torch.testing.assert_close(pooled, grid.values.mean(1))
    assert not torch.allclose(dropped, grid.values.mean(1), atol=1e-3)


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
