"""Operators without a gradient pass autograd, and stop it."""

import torch
from torch import Tensor

from exporter.ops.no_gradient import register_without_gradient


@torch.library.custom_op("star_test::two_of", mutates_args=())
def two_of(scores: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    return scores * scale, scores.clone()


@torch.library.custom_op("star_test::one_of", mutates_args=())
def one_of(scores: Tensor) -> Tensor:
    return scores * 2


register_without_gradient(two_of, 2)
register_without_gradient(one_of, 1)


def test_no_result_carries_a_gradient() -> None:
    scores = torch.ones(3, requires_grad=True)
    first, second = two_of(scores, 2.0)
    assert not (first.requires_grad or second.requires_grad or one_of(scores).requires_grad)


def test_what_is_computed_beside_keeps_its_gradient() -> None:
    scores = torch.ones(3, requires_grad=True)
    (scores * 3 + one_of(scores)).sum().backward()
    assert scores.grad is not None
    assert scores.grad.tolist() == [3, 3, 3]
