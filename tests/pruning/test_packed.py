"""Tokens end to end: the survivors of a grid and nothing else, in places that attention finds again."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from exporter.ops.selection import take_rows
from exporter.pruning.grid import Grid
from exporter.pruning.packed import Packed
from tests.pruning.adaptive import decided
from tests.vits import cut_vit, make_vit

PATCHES = 8
KEPT = st.lists(st.sets(st.integers(0, PATCHES - 1), min_size=1).map(sorted), min_size=1, max_size=4)
UNEVEN = ([[0, 3, 4, 7], [2], [1, 6]], [[0, 2], [0], [1]])


def check_agrees(packed: Packed, grid: Grid) -> None:
    """Whether they hold the same tokens: the grid's live ones end to end, and each found again in its slot."""
    assert grid.live is not None and grid.count is not None and grid.positions is not None
    assert torch.equal(packed.values, grid.values[grid.live])
    assert torch.equal(packed.live, grid.live)
    assert torch.equal(packed.count, grid.count)
    assert torch.equal(packed.places, grid.live.flatten().nonzero().squeeze(1))
    spread = take_rows(packed.values, packed.slots)
    assert torch.equal(spread[grid.live], grid.values[grid.live])
    for image, count in enumerate(grid.count.tolist()):
        assert torch.equal(packed.positions[image, :count], grid.positions[image, :count])
        # Padding is the image's own last survivor.
        last = grid.values[image, grid.prefix + count - 1]
        assert (spread[image, grid.prefix + count :] == last).all()


@given(data=st.data(), kept=KEPT, prefix=st.integers(0, 3))
def test_holds_what_a_grid_holds_after_one_decision_and_another(
    data: st.DataObject, kept: list[list[int]], prefix: int
) -> None:
    grid, first = Grid(torch.randn(len(kept), prefix + PATCHES, 3), prefix), decided(kept)
    packed, reduced = Packed.of(grid, first), grid.reduce(first)
    check_agrees(packed, reduced)
    again = [sorted(data.draw(st.sets(st.integers(0, len(row) - 1), min_size=1))) for row in kept]
    second = decided(again)
    check_agrees(packed.reduce(second), reduced.reduce(second))


@pytest.mark.parametrize("family", ["vit", "registers", "eva02, joined, rotary", "rotary a head"])
def test_a_block_computes_what_it_does_on_a_grid(family: str) -> None:
    vit = make_vit(family)
    grid, block = (
        Grid(torch.randn(3, vit.spec.num_prefix_tokens + 16, 48), vit.spec.num_prefix_tokens),
        vit.blocks[1],
    )
    first, second = (decided(kept) for kept in UNEVEN)
    packed, reduced = Packed.of(grid, first), grid.reduce(first)
    live = reduced.live
    assert live is not None
    with torch.inference_mode():
        (after, here), (expected, there) = packed.attention(block), reduced.attention(block)
        torch.testing.assert_close(after.values, expected.values[live], rtol=1e-5, atol=1e-5)
        for got, wanted in ((here.query, there.query), (here.key, there.key)):
            own = live[:, None, :, None].expand_as(got)
            torch.testing.assert_close(got[own], wanted[own], rtol=1e-5, atol=1e-5)
        after, expected = after.reduce(second).mlp(block), expected.reduce(second).mlp(block)
        live = expected.live
        assert live is not None
        torch.testing.assert_close(after.values, expected.values[live], rtol=1e-5, atol=1e-5)
        after, expected = after.through(vit.blocks[2]), expected.through(vit.blocks[2])
        torch.testing.assert_close(after.values, expected.values[live], rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(after.normed(vit)[live], expected.normed(vit)[live], rtol=1e-5, atol=1e-5)


def test_a_block_without_attention_is_its_mlp() -> None:
    block, first = cut_vit().blocks[1], decided(UNEVEN[0])
    grid = Grid(torch.randn(3, 17, 48), 1)
    packed, reduced = Packed.of(grid, first), grid.reduce(first)
    assert reduced.live is not None
    with torch.inference_mode():
        through, expected = packed.through(block), reduced.mlp(block).values[reduced.live]
        torch.testing.assert_close(through.values, expected, rtol=1e-5, atol=1e-5)
