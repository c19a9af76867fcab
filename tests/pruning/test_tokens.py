"""The layouts of tokens."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from exporter.models.base import PrunableViT, attention_half, mlp_half, whole_block
from exporter.models.spec import with_outputs
from exporter.ops.selection import take_rows
from exporter.pruning.pruned_vit import PrunedViT
from exporter.pruning.tokens import Decision, Grid, Packed, live_tokens
from exporter.records import Output
from exporter.schedule.plan import keep_everything, manual_schedule, shape_schedule
from exporter.schedule.prune import Prune
from exporter.vocabulary import Method, OutputKind
from tests.ops.references import reference_mean
from tests.pruning.adaptive import RATES, decided, make_adaptive
from tests.vits import cut_vit, make_vit, random_images, varied_images, with_tokens


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(0, 3), st.integers(0, 2))
def test_prefix_tokens_and_an_images_own_survivors_are_live(
    counts: list[int], prefix: int, padding: int
) -> None:
    index = torch.zeros(len(counts), max(counts) + padding, dtype=torch.int64)
    live = live_tokens(Decision(index, torch.tensor(counts)), prefix)
    assert live is not None
    width = prefix + index.shape[1]
    assert live.tolist() == [[True] * (prefix + n) + [False] * (width - prefix - n) for n in counts]
    assert live_tokens(Decision(index), prefix) is None


def test_outputs_are_named_in_order_with_what_tokens_need_beside_them() -> None:
    vit = with_tokens(make_vit())
    grid = Grid(torch.randn(2, 17, 48), 1)
    with torch.inference_mode():
        even, uneven = grid.outputs(vit), grid.reduce(decided([[1, 3], [2]])).outputs(vit)
    assert list(even) == ["logits", "tokens", "tokens_positions"]
    assert even["tokens_positions"].tolist() == [list(range(16))] * 2
    assert list(uneven) == [*even, "tokens_count"]
    assert uneven["tokens_count"].tolist() == [2, 1]
    assert uneven["tokens_positions"][0].tolist() == [1, 3] and uneven["tokens_positions"][1, 0] == 2
    torch.testing.assert_close(uneven["tokens"][0], even["tokens"][0, [1, 3]])


def test_the_tokens_are_those_after_the_final_norm_where_they_stand() -> None:
    vit = with_tokens(make_vit())
    images = random_images(vit, 2)
    with torch.inference_mode():
        logits, tokens, positions = PrunedViT(vit, keep_everything(vit.spec))(images)
        expected = vit.embed(images)
        for block in vit.blocks:
            expected = block.whole(expected)
        assert torch.equal(tokens, vit.norm(expected)[:, 1:])
        assert torch.equal(logits, vit.model(images))
        assert positions.tolist() == [list(range(16))] * 2
        trace = make_adaptive(vit, "packed").trace(images)
    standing = torch.arange(16).expand(2, -1)
    for decision in trace.decisions.values():
        standing = standing.gather(1, decision.index)
    last = trace.decisions[4].count
    assert last is not None and torch.equal(trace.outputs["tokens_count"], last)
    for image, count in enumerate(last.tolist()):
        assert torch.equal(trace.outputs["tokens_positions"][image, :count], standing[image, :count])


def test_an_adapter_may_give_logits_and_an_embedding() -> None:
    vit = make_vit()

    def head(normed: torch.Tensor, output: Output, sizes: torch.Tensor | None = None) -> torch.Tensor:
        assert sizes is None
        return vit.classify(normed) if output.kind == OutputKind.LOGITS else normed[:, 0]

    vit.head = head  # type: ignore[method-assign]
    vit.outputs = (*vit.outputs, Output("features", OutputKind.EMBEDDING))
    object.__setattr__(vit.spec, "outputs", (*vit.spec.outputs, Output("features", OutputKind.EMBEDDING, 48)))
    images = random_images(vit, 2)
    with torch.inference_mode():
        logits, features = PrunedViT(vit, keep_everything(vit.spec))(images)
    assert logits.shape == (2, 7) and features.shape == (2, 48)


def test_with_every_patch_it_is_the_tokens() -> None:
    vit = with_outputs(make_vit("registers"), ("grid", "tokens"))
    with torch.inference_mode():
        grid, tokens, _ = PrunedViT(vit, keep_everything(vit.spec))(varied_images(vit, 3))
    assert torch.equal(grid, tokens)


@pytest.mark.parametrize(
    ("method", "layout"),
    [(Method.STAR, "shrinking"), *((Method.A_STAR, each) for each in ("shrinking", "padded", "packed"))],
)
def test_a_dropped_patch_has_its_token_of_the_layer_that_dropped_it(method: Method, layout: str) -> None:
    vit = with_outputs(make_vit("registers"), ("grid",))
    schedule = manual_schedule(vit.spec, RATES, Prune("intra", method=method, reduce="drop"))
    images, prefix = varied_images(vit, 3), vit.spec.num_prefix_tokens
    with torch.inference_mode():
        trace = PrunedViT(vit, schedule, layout=layout).trace(images)
        for image in range(3):
            tokens, there = vit.embed(images[image : image + 1]), torch.arange(16)
            expected = torch.zeros(16, vit.spec.dim)
            for layer, block in enumerate(vit.blocks, start=1):
                tokens, _ = attention_half(block, tokens)
                if layer in trace.decisions:
                    expected[there] = tokens[0, prefix:]
                    made = trace.decisions[layer]
                    kept = made.index[image] if made.count is None else made.index[image, : made.count[image]]
                    tokens = torch.cat([tokens[:, :prefix], tokens[:, prefix:][:, kept]], dim=1)
                    there = there[kept]
                tokens = mlp_half(block, tokens)
            expected[there] = tokens[0, prefix:]
            torch.testing.assert_close(trace.outputs["grid"][image], vit.norm(expected), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("way", ["merge", "tome"])
def test_a_merged_patch_has_the_token_that_it_went_into(way: str) -> None:
    vit = with_outputs(make_vit(), ("grid", "tokens"))
    schedule = (
        shape_schedule(vit.spec, 0.5, Prune())
        if way == "tome"
        else manual_schedule(vit.spec, RATES, Prune("intra", reduce="merge"))
    )
    with torch.inference_mode():
        trace = PrunedViT(vit, schedule).trace(varied_images(vit, 3))
    for image in range(3):
        for patch in range(16):
            place = patch
            for decision in trace.decisions.values():
                assert decision.into is not None
                place = int(decision.into[image, place])
            own = trace.outputs["tokens"][image, place]
            torch.testing.assert_close(trace.outputs["grid"][image, patch], own)
    rows = torch.arange(3).unsqueeze(1)
    standing = trace.outputs["grid"][rows, trace.outputs["tokens_positions"]]
    torch.testing.assert_close(standing, trace.outputs["tokens"])


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


def test_a_block_of_packed_tokens_without_attention_is_its_mlp() -> None:
    block, first = cut_vit().blocks[1], decided(UNEVEN[0])
    grid = Grid(torch.randn(3, 17, 48), 1)
    packed, reduced = Packed.of(grid, first), grid.reduce(first)
    assert reduced.live is not None
    with torch.inference_mode():
        through, expected = packed.through(block), reduced.mlp(block).values[reduced.live]
        torch.testing.assert_close(through.values, expected, rtol=1e-5, atol=1e-5)
