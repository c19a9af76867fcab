import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from exporter.calibration import rules

seeds = st.integers(0, 10_000)


def drawn(seed: int, *shape: int) -> Tensor:
    return torch.from_numpy(np.random.RandomState(seed).standard_normal(shape))


def test_the_inverse_is_guarded_where_the_denominator_vanishes() -> None:
    inverse = rules.guarded_inverse(
        torch.tensor([0.0, 1.0, -1e-9, -2.0], dtype=torch.float64)
    )
    expected = torch.tensor(
        [0.0, 1 / (1 + 1e-9), 1e9, 1 / (-2 + 1e-9)], dtype=torch.float64
    )
    torch.testing.assert_close(inverse, expected, rtol=1e-15, atol=0)


def test_add_of_terms_that_cancel_stays_finite() -> None:
    ones = torch.ones(1, 1, 2, 2)
    for part in rules.add(ones, ones, -ones):
        assert part.tolist() == torch.zeros(1, 1, 2, 2).tolist()


def test_a_value_used_twice_keeps_its_relevance_unless_it_is_zero() -> None:
    part = rules.clone(torch.full((1, 1, 1, 2), 5.0), torch.tensor([[[[2.0, 0.0]]]]))
    assert part.flatten().tolist() == [5.0, 0.0]


@given(seeds)
def test_a_rotation_is_a_part_of_the_product_behind_it(seed: int) -> None:
    """Relevance of q from that of R q · k is q times the gradient of the product, and its sum is what came in."""
    angle = drawn(seed, 4)
    turn = torch.block_diag(
        *(torch.stack([a.cos(), -a.sin(), a.sin(), a.cos()]).view(2, 2) for a in angle)
    )
    query, key = drawn(seed + 1, 1, 1, 2, 3, 8), drawn(seed + 2, 1, 1, 2, 8, 5)
    relevance = drawn(seed + 3, 1, 4, 2, 3, 5)
    turned = query @ turn.T
    of_turned = (relevance * rules.half_share(turned @ key) @ key.mT) * turned
    part = rules.rotation(of_turned, query, turned, lambda gradient: gradient @ turn)
    ratio = relevance * 0.5 * rules.guarded_inverse(turned @ key)
    expected = query * (ratio @ key.transpose(-2, -1) @ turn)
    torch.testing.assert_close(part, expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(part.sum(-1), of_turned.sum(-1), rtol=1e-4, atol=1e-4)


def test_the_unit_of_a_class_is_a_linear_layer_of_one() -> None:
    """Two heads share the relevance of a class, so that it is not 1."""
    value, weight, relevance = drawn(0, 2, 1, 6), drawn(1, 2, 3, 6), drawn(2, 2, 3)
    parts = rules.output_unit(value, weight, relevance)
    for image in range(2):
        for place in range(3):
            alone = rules.linear(
                relevance[image, place].reshape(1, 1, 1, 1),
                value[image].reshape(1, 1, 1, 6),
                weight[image, place].unsqueeze(0),
            )
            torch.testing.assert_close(parts[image, place], alone.flatten())


@given(seeds)
def test_a_mean_gives_all_to_values_of_its_sign(seed: int) -> None:
    relevance, value = drawn(seed, 1, 2, 3), drawn(seed + 1, 1, 1, 7, 3)
    parts = rules.mean(relevance, value)
    torch.testing.assert_close(parts.sum(-2), relevance, rtol=1e-6, atol=1e-8)
    agrees = (value * value.mean(-2, keepdim=True) > 0).expand_as(parts)
    assert (parts[~agrees] == 0).all()
    share = (
        parts
        / relevance.unsqueeze(-2)
        * value.abs().where(agrees, 0).sum(-2, keepdim=True)
    )
    torch.testing.assert_close(
        share[agrees], value.abs().expand_as(parts)[agrees], rtol=1e-5, atol=1e-7
    )
