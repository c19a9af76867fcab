"""Merging in the PyTorch reference: what a plain loop computes, whole at rates of 1, with sizes that add up."""

import numpy as np
import pytest
import torch

from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.prune.tokens import Decision
from exporter.core.schedule.plan import manual_schedule
from exporter.core.schedule.policy import resolve
from exporter.core.schedule.prune import Prune
from exporter.core.vit.protocol import PrunableViT, attention_half, mlp_half
from tests.core.prune.adaptive import RATES, inter_of
from tests.core.prune.ops.references import reference_into, reference_mean
from tests.vits import make_vit, random_images

FAMILIES = ("vit", "registers", "distilled", "lvvit")


def merging(
    vit: PrunableViT, scorer: str = "fused", reduce: str = "merge"
) -> PrunedViT:
    settings = Prune(scorer, alpha=0.3, reduce=reduce)
    return PrunedViT(
        vit, manual_schedule(vit.spec, RATES, resolve(settings)), inter_of(vit)
    )


@pytest.mark.parametrize("reduce", ["merge", "merge-weighted"])
@pytest.mark.parametrize("family", FAMILIES)
def test_each_image_is_merged_as_a_plain_loop_merges_it(
    family: str, reduce: str
) -> None:
    """One image at a time, groups averaged by NumPy; which patches stay is held to a loop elsewhere."""
    vit = make_vit(family)
    pruned, images = merging(vit, reduce=reduce), random_images(vit, 2)
    with torch.inference_mode():
        trace = pruned.trace(images)
        for image in range(2):
            logits = plain_loop(
                pruned, images[image : image + 1], trace.decisions, image
            )
            torch.testing.assert_close(
                trace.logits[image], logits, rtol=1e-4, atol=1e-4
            )


def plain_loop(
    pruned: PrunedViT, image: torch.Tensor, decisions: dict[int, Decision], row: int
) -> torch.Tensor:
    vit = pruned.vit
    prefix = vit.spec.num_prefix_tokens
    sizes = np.ones(vit.spec.num_prefix_tokens + vit.spec.num_patches)
    tokens, positions = vit.embed(image), torch.arange(vit.spec.num_patches)[None]
    for layer, block in enumerate(vit.blocks, start=1):
        bias = (
            torch.from_numpy(np.log(sizes)).float()[None]
            if pruned.reduction.weighs_keys
            else None
        )
        tokens, seen = attention_half(block, tokens, positions, key_bias=bias)
        if layer in decisions:
            made = decisions[layer]
            assert made.into is not None
            keep, into = made.index[row].numpy(), made.into[row].numpy()
            places, _ = reference_into(seen.key[0].numpy(), keep, prefix)
            np.testing.assert_array_equal(into, places)
            merged, sizes = reference_mean(
                tokens[0].numpy(), into, sizes, len(keep), prefix
            )
            assert sizes.sum() == prefix + vit.spec.num_patches
            tokens = torch.from_numpy(merged).float()[None]
            positions = positions[:, keep]
        tokens = mlp_half(block, tokens)
    return vit.classify(vit.norm(tokens))[0]
