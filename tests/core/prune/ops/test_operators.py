"""Every operator of pruning is well formed: its schema, its shapes, what it leaves alone and its gradients."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.library import opcheck

from exporter.core.prune.ops import factors, merging, selection  # noqa: F401  (they register)

HEADS, TOKENS = torch.randn(2, 3, 6, 4), torch.randn(2, 6, 4)
KEEP = torch.tensor([[0, 2], [1, 3]])
INTO = torch.tensor([[0, 0, 1, 1, 0], [0, 0, 0, 1, 1]])


def cases() -> Iterator[tuple[str, tuple[Any, ...]]]:
    """The operators, and what they are called with."""
    for count in (1, 2):
        yield "class_row", (HEADS.double(), HEADS.double(), 0.5, count)
    for bias in (None, torch.zeros(2, 6)):
        yield "received", (HEADS, HEADS + 1, bias, 0.5, 2)
    for live in (None, torch.ones(2, 6, dtype=torch.bool)):
        yield "dissimilarity", (HEADS, live, 1)
    for sizes in (None, torch.ones(2, 6)):
        yield "merge_tokens", (TOKENS, INTO, sizes, 2, 1)
    for kept, prefix in ((4, 1), (5, 1), (3, 0), (4, 3), (2, 1)):
        key = torch.randn(2, 2, prefix + 7, 4)
        for sizes in (None, torch.ones(2, prefix + 7)):
            yield "pair_tokens", (key, sizes, kept, prefix)
    yield "merge_into", (HEADS, KEEP, 1)
    yield "keep_top_k", (TOKENS[..., 0], 3)
    yield "take_tokens", (TOKENS, KEEP, 1)
    yield "cdf_retain", (torch.rand(3, 8), torch.tensor([8, 3, 1]), 0.5)


@pytest.mark.parametrize(("name", "arguments"), [*cases()])
def test_it_is_well_formed(name: str, arguments: tuple[Any, ...]) -> None:
    opcheck(getattr(torch.ops.star, name).default, arguments)
