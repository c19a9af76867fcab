"""Intra-layer factors: each patch's, whatever the layout, and that of the formula."""

from collections.abc import Iterator

import pytest
import torch

from exporter.models.base import PrunableViT
from exporter.models.pooling import AttentionPooling
from exporter.pruning.grid import Grid
from exporter.pruning.intra import INTRA, Layer
from exporter.pruning.packed import Packed
from exporter.pruning.pruned_vit import PrunedViT
from exporter.pruning.tokens import Tokens
from exporter.schedule.plan import ScheduleSettings, manual_schedule
from exporter.schedule.scorers import SCORERS
from tests.pruning.adaptive import LAYOUTS, decided, make_adaptive, varied_images
from tests.vits import make_vit, random_images

KEPT = [[0, 3, 4, 7], [2], [1, 6]]
FAMILY = {"class": "registers", "received": "pooled, registers", "similarity": "pooled"}


def vit_with(factor: str) -> PrunableViT:
    return make_vit(FAMILY.get(factor, "pooled by attention"))


def grid_of(vit: PrunableViT) -> Grid:
    prefix = vit.spec.num_prefix_tokens
    torch.manual_seed(0)
    return Grid(torch.randn(3, prefix + 16, vit.spec.dim), prefix)


def scored(vit: PrunableViT, factor: str, tokens: Tokens, stride: int = 1) -> torch.Tensor:
    with torch.inference_mode():
        after, seen = tokens.attention(vit.blocks[1])
        return INTRA[factor](Layer(vit, after, seen, stride))


def test_every_scorer_has_its_factor() -> None:
    vit = make_vit("pooled by attention")
    assert {each.factor_of(vit.spec).name for each in SCORERS.values()} == INTRA.keys()


@pytest.mark.parametrize("factor", INTRA)
def test_an_image_alone_has_the_scores_it_has_beside_others(factor: str) -> None:
    vit = vit_with(factor)
    grid, first = grid_of(vit), decided(KEPT)
    together = scored(vit, factor, grid.reduce(first))
    packed = scored(vit, factor, Packed.of(grid, first))
    for image, kept in enumerate(KEPT):
        one = Grid(grid.values[image, None], grid.prefix).reduce(decided([kept]))
        alone = scored(vit, factor, one)[0]
        for got in (together, packed):
            torch.testing.assert_close(got[image, : len(kept)], alone, rtol=1e-4, atol=1e-5)


def test_the_attention_received_is_that_of_all_tokens_and_excludes_prefix_tokens() -> None:
    vit = vit_with("received")
    grid = grid_of(vit)
    _, seen = grid.attention(vit.blocks[1])
    whole = (seen.query @ seen.key.mT * seen.scale).softmax(-1)
    for stride in (1, 3):
        expected = whole[:, :, ::stride].mean((1, 2))[:, grid.prefix :]
        torch.testing.assert_close(scored(vit, "received", grid, stride), expected)


def test_the_probe_of_the_last_tokens_is_the_poolings_own_attention() -> None:
    vit = vit_with("probe")
    grid = grid_of(vit)
    assert isinstance(vit.pooling, AttentionPooling)
    with torch.inference_mode():
        after, seen = grid.attention(vit.blocks[1])
        logits = vit.pooling.probe(vit.norm(after.values))
        got = INTRA["probe"](Layer(vit, after, seen, 1))
    torch.testing.assert_close(got, logits.softmax(-1).mean(1))
    torch.testing.assert_close(got.sum(-1), torch.ones(3))


def test_a_model_that_pools_otherwise_has_no_probe() -> None:
    with pytest.raises(TypeError, match="no pooling by attention"):
        scored(make_vit("pooled"), "probe", grid_of(make_vit("pooled")))


def cases() -> Iterator[tuple[str, str]]:
    for scorer in ("received", "similarity", "fused"):
        yield "pooled", scorer
        yield "eva02, pooled", scorer
    yield "pooled by attention", "probe"
    yield "pe, pooled by attention", "probe"


@pytest.mark.parametrize(("family", "scorer"), list(cases()))
def test_layouts_agree(family: str, scorer: str) -> None:
    vit = make_vit(family)
    images = varied_images(vit, 4)
    with torch.inference_mode():
        traces = [make_adaptive(vit, layout, scorer).trace(images) for layout in LAYOUTS]
    for trace in traces[1:]:
        torch.testing.assert_close(trace.logits, traces[0].logits, rtol=1e-4, atol=1e-4)
        for layer, decision in trace.decisions.items():
            count = decision.count
            other = traces[0].decisions[layer].count
            assert count is not None and other is not None and torch.equal(count, other)
    if scorer == "received":  # the others reach the most that a layer keeps of these images
        counts = torch.stack([made.count for made in traces[0].decisions.values() if made.count is not None])
        assert counts.unique(dim=1).shape[1] > 1


def test_merging_keeps_the_mean_over_all_patches() -> None:
    """Of tokens that no block changes: a merged token is the mean of its patches, and counts as often."""
    vit = make_vit("pooled")
    grid = grid_of(vit)
    with torch.inference_mode():
        settings = ScheduleSettings("received", reduce="merge")
        pruned = PrunedViT(vit, manual_schedule(vit.spec, {1: 0.5, 3: 0.5}, settings))
        decisions = pruned.trace(random_images(vit, 3)).decisions
        merged = grid
        for decision in decisions.values():
            merged = merged.reduce(decision)
        assert merged.sizes is not None and vit.pooling is not None
        pooled = vit.pooling(merged.values, merged.sizes)
        dropped = vit.pooling(merged.values, torch.ones_like(merged.sizes))
    torch.testing.assert_close(pooled, grid.values.mean(1))
    assert not torch.allclose(dropped, grid.values.mean(1), atol=1e-3)
