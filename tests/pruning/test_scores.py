"""Scores: the fusion is the minimiser of the paper's objective, and unread factors are not read."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from exporter.ops.class_row import class_row
from exporter.pruning.scores import SCORE_FLOOR, intra_score, log_fused, weigh_inter

ALPHA = st.floats(0.05, 0.95)


@given(alpha=ALPHA, seed=st.integers(0, 2**16))
def test_fusion_minimises_the_weighted_divergences(alpha: float, seed: int) -> None:
    """STAR, Eq. 3 and 4: argmin over p of alpha·KL(p‖intra) + (1 − alpha)·KL(p‖inter)."""
    generator = np.random.default_rng(seed)
    intra, inter = generator.dirichlet(np.ones(5) * 2, 2)
    fused = log_fused(
        torch.tensor(intra[None], dtype=torch.float32), weigh_inter(torch.tensor(inter[None]), alpha), alpha
    )
    closed = fused[0].double().softmax(-1).numpy()

    def objective(logits: np.ndarray) -> float:
        p = np.exp(logits - logits.max())
        p /= p.sum()
        return float((p * (np.log(p) - alpha * np.log(intra) - (1 - alpha) * np.log(inter))).sum())

    numeric = minimize(objective, np.zeros(5), method="BFGS", options={"gtol": 1e-9})
    assert objective(np.log(closed)) <= numeric.fun + 1e-7
    p = np.exp(numeric.x - numeric.x.max())
    assert closed == pytest.approx(p / p.sum(), abs=2e-4)


@given(alpha=ALPHA, power=st.integers(-250, 250), zeros=st.integers(0, 4), seed=st.integers(0, 2**16))
def test_the_unit_of_inter_layer_scores_changes_nothing(
    alpha: float, power: int, zeros: int, seed: int
) -> None:
    """Not even where scores are smaller than the floor, or 0."""
    inter = torch.from_numpy(np.random.default_rng(seed).dirichlet(np.ones(9), 2))
    inter[:, :zeros] = 0
    table = weigh_inter(inter, alpha)
    torch.testing.assert_close(weigh_inter(inter * 10.0**power, alpha), table, rtol=1e-6, atol=1e-6)
    assert (table <= 0).all() and (table.amax(-1) == 0).all()
    floor = (1 - alpha) * math.log(SCORE_FLOOR)
    torch.testing.assert_close(table[:, :zeros], torch.full((2, zeros), floor))


def test_a_layer_without_scores_prefers_no_patch() -> None:
    assert torch.equal(weigh_inter(torch.zeros(2, 5), 0.15), torch.zeros(2, 5))


@given(alpha=ALPHA, scale=st.floats(0.01, 100.0), seed=st.integers(0, 2**16))
def test_scaling_a_factor_leaves_the_order(alpha: float, scale: float, seed: int) -> None:
    generator = np.random.default_rng(seed)
    intra, inter = torch.from_numpy(generator.dirichlet(np.ones(9), 2))
    one = log_fused(intra[None].float(), weigh_inter(inter[None], alpha), alpha)
    other = log_fused(intra[None].float(), weigh_inter(scale * inter[None], alpha), alpha)
    assert float((one - other).std()) < 1e-4


def test_a_factor_of_weight_zero_is_not_read() -> None:
    intra = torch.tensor([[0.2, 0.8]])
    assert torch.equal(log_fused(intra, None, 1.0), intra.log())
    table = torch.tensor([[0.3, 0.1]])
    assert torch.equal(log_fused(None, table, 0.0), table)


def test_zeros_stay_finite_and_rank_last() -> None:
    scores = log_fused(
        torch.tensor([[0.0, 0.5, 0.5]]), weigh_inter(torch.tensor([[0.5, 0.0, 0.5]]), 0.15), 0.15
    )
    assert torch.isfinite(scores).all()
    assert scores[0].argmax() == 2


@pytest.mark.parametrize("prefix", [1, 2, 5])
def test_intra_is_the_class_tokens_attention_of_the_patches(prefix: int) -> None:
    row = torch.randn(2, 3, prefix + 6)
    expected = row.softmax(-1).mean(1)[:, prefix:]
    torch.testing.assert_close(intra_score(row, prefix), expected)
    assert intra_score(row.half(), prefix).dtype == torch.float32


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
