"""The class tokens' rows of attention logits equal the whole matrix's, gradients included."""

import pytest
import torch

from exporter.ops.class_row import class_row

CLASS_TOKENS = pytest.mark.parametrize("count", [1, 2])


def heads(seed: int) -> torch.Tensor:
    return torch.randn(2, 3, 5, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@CLASS_TOKENS
def test_it_is_the_first_rows_of_all_head_by_head(count: int) -> None:
    query, key = heads(0), heads(1)
    expected = (query @ key.transpose(-2, -1))[:, :, :count].reshape(2, 3 * count, 5) * 0.5
    torch.testing.assert_close(class_row(query, key, 0.5, count), expected)


def test_one_token_classifies_unless_it_is_said() -> None:
    assert torch.equal(class_row(heads(0), heads(1), 0.5), class_row(heads(0), heads(1), 0.5, 1))


@CLASS_TOKENS
def test_its_gradients_are_those_of_the_formula(count: int) -> None:
    query, key = heads(0).requires_grad_(), heads(1).requires_grad_()
    assert torch.autograd.gradcheck(lambda q, k: class_row(q, k, 0.5, count), (query, key))


@CLASS_TOKENS
def test_the_operator_is_well_formed(count: int) -> None:
    torch.library.opcheck(torch.ops.star.class_row, (heads(0), heads(1), 0.5, count))
