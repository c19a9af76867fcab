"""The class token's row of attention logits equals the whole matrix's, gradients included."""

import torch

from exporter.ops.class_row import class_row


def heads(seed: int) -> torch.Tensor:
    return torch.randn(2, 3, 5, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_it_is_the_first_row_of_all() -> None:
    query, key = heads(0), heads(1)
    expected = (query @ key.transpose(-2, -1))[:, :, 0] * 0.5
    torch.testing.assert_close(class_row(query, key, 0.5), expected)


def test_its_gradients_are_those_of_the_formula() -> None:
    query, key = heads(0).requires_grad_(), heads(1).requires_grad_()
    assert torch.autograd.gradcheck(lambda q, k: class_row(q, k, 0.5), (query, key))


def test_the_operator_is_well_formed() -> None:
    torch.library.opcheck(torch.ops.star.class_row, (heads(0), heads(1), 0.5))
