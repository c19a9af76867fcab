"""The layouts of tokens."""

import pytest
import torch

from exporter.core.base.vocabulary import Method
from exporter.core.prune.ops.curve import order_of
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.prune.tokens import Decision, Grid, Packed
from exporter.core.schedule.plan import keep_everything, manual_schedule, shape_schedule
from exporter.core.schedule.policy import resolve
from exporter.core.schedule.prune import Prune
from exporter.core.vit.protocol import attention_half, mlp_half
from exporter.core.vit.spec import with_outputs
from tests.core.prune.adaptive import RATES, decided
from tests.vits import cut_vit, make_vit, random_images, varied_images, with_tokens


def test_outputs_are_named_in_order_with_what_tokens_need_beside_them() -> None:
    vit = with_tokens(make_vit())
    grid = Grid(torch.randn(2, 17, 48), 1)
    with torch.inference_mode():
        even = grid.outputs(vit)
        uneven = grid.reduce(decided([[1, 3], [2]])).outputs(vit)
    assert list(even) == ["logits", "tokens", "tokens_positions"]
    assert even["tokens_positions"].tolist() == [list(range(16))] * 2
    assert list(uneven) == [*even, "tokens_count"]
    assert uneven["tokens_count"].tolist() == [2, 1]
    assert (
        uneven["tokens_positions"][0].tolist() == [1, 3]
        and uneven["tokens_positions"][1, 0] == 2
    )
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


def test_with_every_patch_it_is_the_tokens() -> None:
    vit = with_outputs(make_vit("registers"), ("grid", "tokens"))
    with torch.inference_mode():
        grid, tokens, _ = PrunedViT(vit, keep_everything(vit.spec))(
            varied_images(vit, 3)
        )
    assert torch.equal(grid, tokens)


@pytest.mark.parametrize(
    ("method", "layout"),
    [
        (Method.STAR, "shrinking"),
        *((Method.A_STAR, each) for each in ("shrinking", "padded", "packed")),
    ],
)
def test_a_dropped_patch_has_its_token_of_the_layer_that_dropped_it(
    method: Method, layout: str
) -> None:
    vit = with_outputs(make_vit("registers"), ("grid",))
    schedule = manual_schedule(
        vit.spec, RATES, resolve(Prune("intra", method=method, reduce="drop"))
    )
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
                    kept = (
                        made.index[image]
                        if made.count is None
                        else made.index[image, : made.count[image]]
                    )
                    tokens = torch.cat(
                        [tokens[:, :prefix], tokens[:, prefix:][:, kept]], dim=1
                    )
                    there = there[kept]
                tokens = mlp_half(block, tokens)
            expected[there] = tokens[0, prefix:]
            torch.testing.assert_close(
                trace.outputs["grid"][image], vit.norm(expected), rtol=1e-4, atol=1e-4
            )


@pytest.mark.parametrize("way", ["merge", "tome"])
def test_a_merged_patch_has_the_token_that_it_went_into(way: str) -> None:
    vit = with_outputs(make_vit(), ("grid", "tokens"))
    schedule = (
        shape_schedule(vit.spec, 0.5, resolve(Prune()))
        if way == "tome"
        else manual_schedule(vit.spec, RATES, resolve(Prune("intra", reduce="merge")))
    )
    with torch.inference_mode():
        trace = PrunedViT(vit, schedule).trace(varied_images(vit, 3))
    order = order_of(schedule, vit.spec.grid).tolist()
    for image in range(3):
        for patch in range(16):
            place = order.index(patch)
            for decision in trace.decisions.values():
                assert decision.into is not None
                place = int(decision.into[image, place])
            own = trace.outputs["tokens"][image, place]
            torch.testing.assert_close(trace.outputs["grid"][image, patch], own)
    rows = torch.arange(3).unsqueeze(1)
    standing = trace.outputs["grid"][rows, trace.outputs["tokens_positions"]]
    torch.testing.assert_close(standing, trace.outputs["tokens"])


def test_a_head_that_pools_counts_a_merged_token_as_often_as_its_patches() -> None:
    vit, joined = make_vit("pooled"), torch.tensor([[0] * 12 + [1] * 4])
    grid = Grid(torch.randn(1, 2, 48)[:, joined[0]], 0)
    merged = grid.reduce(Decision(torch.tensor([[0, 12]]), into=joined))
    with torch.inference_mode():
        logits, expected = (tokens.outputs(vit)["logits"] for tokens in (merged, grid))
    torch.testing.assert_close(logits, expected)


@pytest.mark.parametrize("packed", [False, True])
def test_a_block_without_attention_is_its_mlp(packed: bool) -> None:
    block, first = cut_vit().blocks[1], decided([[0, 3, 4, 7], [2], [1, 6]])
    grid = Grid(torch.randn(3, 17, 48), 1)
    with torch.inference_mode():
        through = (
            Packed.of(grid, first).through(block).rows()
            if packed
            else grid.reduce(first).through(block).rows()
        )
        reduced = grid.reduce(first)
        expected = mlp_half(block, reduced.values)[reduced.live]
        torch.testing.assert_close(
            through[reduced.live], expected, rtol=1e-5, atol=1e-5
        )
