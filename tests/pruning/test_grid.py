"""A row of tokens for each image: what a reduction leaves in it, and what padding must not reach."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from exporter.models.base import PrunableViT
from exporter.models.block import attention_half, mlp_half, whole_block
from exporter.pruning.grid import Grid
from exporter.pruning.tokens import Decision
from tests.ops.merging_reference import reference_mean
from tests.pruning.adaptive import decided, make_adaptive, varied_images
from tests.vits import cut_vit, make_vit


@given(data=st.data(), prefix=st.integers(0, 3), batch=st.integers(1, 3), patches=st.integers(2, 9))
def test_survivors_keep_their_tokens_and_where_they_stand(
    data: st.DataObject, prefix: int, batch: int, patches: int
) -> None:
    values = torch.randn(batch, prefix + patches, 4)
    grid, standing = Grid(values, prefix), [list(range(patches))] * batch
    for _ in range(2):
        most = len(standing[0])
        width = data.draw(st.integers(1, most))
        kept = [sorted(data.draw(st.permutations(range(most)))[:width]) for _ in range(batch)]
        grid = grid.reduce(Decision(torch.tensor(kept)))
        standing = [[row[place] for place in chosen] for row, chosen in zip(standing, kept, strict=True)]
    assert grid.positions is not None
    assert grid.positions.tolist() == standing
    assert (grid.count, grid.live, grid.sizes) == (None, None, None)
    for image, positions in enumerate(standing):
        rows = [*range(prefix), *(prefix + place for place in positions)]
        assert torch.equal(grid.values[image], values[image, rows])


def test_a_row_ends_in_padding_where_an_image_keeps_fewer() -> None:
    grid = Grid(torch.randn(2, 7, 4), 2).reduce(decided([[1, 3, 4], [2]]))
    assert grid.count is not None and grid.live is not None
    assert grid.count.tolist() == [3, 1]
    assert grid.live.tolist() == [[True] * 5, [True, True, True, False, False]]


def test_merged_tokens_are_means_by_size_from_layer_to_layer() -> None:
    grid = Grid(torch.randn(1, 7, 4), 1)
    first = Decision(torch.tensor([[0, 2, 5]]), into=torch.tensor([[0, 0, 1, 1, 1, 2]]))
    second = Decision(torch.tensor([[1]]), into=torch.tensor([[0, 0, 0]]))
    tokens, _ = reference_mean(grid.values[0].numpy(), np.array([0, 0, 1, 1, 1, 2]), np.ones(7), 3, 1)
    once = grid.reduce(first)
    np.testing.assert_allclose(once.values[0].numpy(), tokens, rtol=1e-5, atol=1e-6)
    twice = once.reduce(second)
    assert once.sizes is not None and twice.sizes is not None and twice.positions is not None
    assert (once.sizes.tolist(), twice.sizes.tolist()) == ([[1, 2, 3, 1]], [[1, 6]])
    assert twice.positions.tolist() == [[2]]
    # However they joined: the mean over all patches, the prefix token as it was.
    torch.testing.assert_close(twice.values[0, 1], grid.values[0, 1:].mean(0))
    assert torch.equal(twice.values[0, 0], grid.values[0, 0])


def test_sizes_weigh_keys_where_the_reduction_asks_for_it() -> None:
    vit = make_vit()
    sizes = torch.full((1, 17), 3.0)
    grid = Grid(torch.randn(1, 17, 48), 1, sizes=sizes)
    weighed = replace(grid, weighs_keys=True, sizes=torch.cat([sizes[:, :1] * 0 + 1, sizes[:, 1:]], dim=1))
    assert grid.key_bias is None
    with torch.inference_mode():
        block = vit.blocks[0]
        plain, sized = grid.through(block).values, weighed.through(block)
        assert not torch.allclose(plain, sized.values)
        torch.testing.assert_close(sized.values, weighed.attention(block)[0].mlp(block).values)


def test_a_block_is_run_whole_until_padding_must_be_kept_out() -> None:
    vit = make_vit("eva02, joined, rotary")
    block, tokens = vit.blocks[1], torch.randn(2, 6, 48)
    positions = torch.tensor([[0, 3, 7, 9, 15], [1, 2, 3, 4, 14]])
    live = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    with torch.inference_mode():
        even = Grid(tokens, 1, positions).through(block)
        assert torch.equal(even.values, whole_block(block, tokens, positions))
        padded = Grid(tokens, 1, positions, live=live).through(block)
        half, seen = attention_half(block, tokens, positions, live)
        assert torch.equal(padded.values, mlp_half(block, half))
        again = Grid(tokens, 1, positions, live=live).attention(block)[1]
        assert torch.equal(again.query, seen.query) and torch.equal(again.key, seen.key)
        alone = whole_block(block, tokens[1:, :4], positions[1:, :3])
        torch.testing.assert_close(padded.values[1:, :4], alone, rtol=1e-5, atol=1e-5)


def test_a_block_without_attention_is_its_mlp() -> None:
    block, tokens = cut_vit().blocks[1], torch.randn(2, 6, 48)
    with torch.inference_mode():
        through = Grid(tokens, 1, live=torch.ones(2, 6, dtype=torch.bool)).through(block)
        assert torch.equal(through.values, mlp_half(block, tokens))


def test_a_head_that_takes_a_maximum_meets_no_padding() -> None:
    tokens, live = torch.randn(1, 5, 48), torch.tensor([[True, True, True, False, False]])
    for family, padding in (("lvvit", [1, 1]), ("vit", [3, 4])):
        vit = make_vit(family)
        with torch.inference_mode():
            expected = vit.norm(tokens)[:, [0, 1, 2, *padding]]
            assert torch.equal(Grid(tokens, 1, live=live).normed(vit), expected)


@pytest.mark.parametrize("layout", ["shrinking", "padded"])
def test_padding_is_never_read(tiny_vit: PrunableViT, layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Padding full of large numbers changes nothing; packed tokens have none."""
    pruned, images = make_adaptive(tiny_vit, layout), varied_images(tiny_vit, 4)
    with torch.inference_mode():
        expected = pruned(images)
    reduce = Grid.reduce

    def soil(self: Grid, kept: Decision) -> Grid:
        clean = reduce(self, kept)
        assert clean.live is not None
        return replace(clean, values=torch.where(clean.live.unsqueeze(-1), clean.values, 1e3))

    monkeypatch.setattr(Grid, "reduce", soil)
    with torch.inference_mode():
        torch.testing.assert_close(pruned(images), expected, rtol=1e-5, atol=1e-5)
