"""Scores: the fusion is the minimiser of the paper's objective, and unread factors are not read."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from exporter.pruning.scores import intra_score, log_fused, weigh_inter

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
