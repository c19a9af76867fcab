"""ToMe in the PyTorch reference: what a plain loop computes, whole at a rho of 1."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from exporter.core.base.vocabulary import Method
from exporter.core.prune.ops.curve import along_curve
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.schedule.plan import schedule_of
from exporter.core.schedule.policy import resolve
from exporter.core.schedule.prune import Prune
from exporter.core.vit.protocol import (
    BlockParts,
    PrunableViT,
    add_attention,
    heads,
    mlp_half,
    project,
)
from tests.core.prune.ops.references import Pairs, reference_mean, reference_pairs
from tests.vits import make_vit, random_images

TOME = Prune(rho=0.4, method=Method.TOME)
MATCHING = Prune(rho=0.4, method=Method.MATCHING)
EARLY = Prune(rates={0: 0.75, 1: 0.75, 2: 0.75})


def merging(vit: PrunableViT, settings: Prune = TOME) -> PrunedViT:
    return PrunedViT(vit, schedule_of(resolve(settings), vit.spec))


@pytest.mark.parametrize(
    "settings", [TOME, MATCHING, EARLY], ids=["tome", "matching", "early"]
)
@pytest.mark.parametrize("family", ["vit", "distilled", "registers"])
def test_each_image_is_merged_as_a_plain_loop_merges_it(
    family: str, settings: Prune
) -> None:
    """One image at a time: pairs and means by NumPy, attention written out with the sizes in its softmax."""
    pruned = merging(make_vit(family), settings)
    images = random_images(pruned.vit, 2)
    with torch.inference_mode():
        trace = pruned.trace(images)
        for image in range(2):
            logits, made = plain_loop(pruned, images[image : image + 1])
            assert made.keys() == trace.decisions.keys()
            torch.testing.assert_close(
                trace.logits[image], logits, rtol=1e-4, atol=1e-4
            )
            for layer, pairs in made.items():
                into = trace.decisions[layer].into
                assert into is not None
                np.testing.assert_array_equal(
                    trace.decisions[layer].index[image], pairs.index
                )
                np.testing.assert_array_equal(into[image], pairs.into)
                np.testing.assert_allclose(
                    trace.score[layer][image], pairs.score, atol=1e-4
                )
                np.testing.assert_allclose(
                    trace.gap[layer][image], pairs.gap, atol=1e-4
                )


def test_a_schedule_from_before_the_curve_merges_row_by_row() -> None:
    vit = make_vit("vit")
    along = schedule_of(resolve(MATCHING), vit.spec)
    pruned = PrunedViT(vit, replace(along, along_curve=False))
    images = random_images(vit, 1)
    with torch.inference_mode():
        trace = pruned.trace(images)
        logits, pairs = plain_loop(pruned, images)
        assert not torch.allclose(PrunedViT(vit, along)(images), trace.logits)
    torch.testing.assert_close(trace.logits[0], logits, rtol=1e-4, atol=1e-4)
    for layer, decision in trace.decisions.items():
        np.testing.assert_array_equal(decision.index[0], pairs[layer].index)


def plain_loop(
    pruned: PrunedViT, image: torch.Tensor
) -> tuple[torch.Tensor, dict[int, Pairs]]:
    vit, tokens = pruned.vit, pruned.vit.embed(image)
    prefix, sizes = vit.spec.num_prefix_tokens, np.ones(tokens.shape[1])
    if pruned.schedule.along_curve:
        order = prefix + along_curve(vit.spec.grid)
        tokens = torch.cat([tokens[:, :prefix], tokens[:, order]], dim=1)
    made: dict[int, Pairs] = {}
    for layer, kept in enumerate(pruned.schedule.left):
        if layer:
            tokens, key = weighted_attention(vit.blocks[layer - 1], tokens, sizes)
        elif not pruned.schedule.embedded:
            continue
        if kept == pruned.schedule.left[layer - 1] and layer:
            tokens = mlp_half(vit.blocks[layer - 1], tokens)
            continue
        if pruned.schedule.method == Method.MATCHING:
            made[layer] = reference_pairs(
                tokens.numpy(), kept, prefix, sizes if made else None
            )
        else:
            made[layer] = reference_pairs(key.numpy(), kept, prefix)
        merged, sizes = reference_mean(
            tokens[0].numpy(), made[layer].into, sizes, kept, prefix
        )
        assert sizes.sum() == prefix + vit.spec.num_patches
        tokens = torch.from_numpy(merged).float()[None]
        if layer:
            tokens = mlp_half(vit.blocks[layer - 1], tokens)
    return vit.classify(vit.norm(tokens))[0], made


def weighted_attention(
    block: BlockParts, tokens: torch.Tensor, sizes: np.ndarray
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention in which a token counts as often as its size says; and the keys of the one image."""
    query, key, value = (part[0] for part in heads(block, project(block, tokens)))
    powers = (
        query @ key.transpose(1, 2) / key.shape[-1] ** 0.5
    ).exp() * torch.from_numpy(sizes).float()
    context = (
        (powers / powers.sum(-1, keepdim=True) @ value)
        .transpose(0, 1)
        .reshape(1, tokens.shape[1], -1)
    )
    return add_attention(block, tokens, context), key


def test_rotary_positions_follow_the_order_of_the_survivors() -> None:
    """An image alone and in a batch; the order of the survivors is not ascending."""
    pruned = merging(make_vit("eva02, joined, rotary"))
    images = random_images(pruned.vit, 3)
    with torch.inference_mode():
        together, alone = pruned.trace(images), pruned.trace(images[1:2])
    assert not torch.equal(
        together.decisions[1].index, together.decisions[1].index.sort().values
    )
    torch.testing.assert_close(together.logits[1:2], alone.logits, rtol=1e-4, atol=1e-4)
