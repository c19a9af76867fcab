"""Doubled tokens and halved branches are the same function."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from exporter.depth.plan import DepthPlan
from exporter.depth.surgery import apply_plan
from exporter.errors import DepthError
from exporter.models.base import PrunableViT
from exporter.models.registry import adapt
from exporter.vocabulary import AttentionVariant
from tests.depth.models import MERGED_FAMILIES, seeded_vit
from tests.vits import random_images

NOSE = DepthPlan((2, 4), variant=AttentionVariant.NOSE)


def doubled(vit: PrunableViT, images: Tensor, layers: tuple[int, ...]) -> Tensor:
    """The network with 2x in place of the attention of some layers, written out."""
    tokens = vit.embed(images)
    for layer, block in enumerate(vit.blocks, start=1):
        mlp: Any = block.mlp
        if layer in layers:
            tokens = 2 * tokens
            tokens = tokens + mlp.out(mlp.whole(mlp.norm(tokens)))
        elif block.attention is not None and block.attention.rotary is not None:
            tokens = block.whole(tokens, rope=block.attention.rotary.at(None))
        else:
            tokens = block.whole(tokens)
    return vit.classify(vit.norm(tokens))


@pytest.mark.parametrize("family", MERGED_FAMILIES)
def test_it_is_twice_the_tokens(family: str) -> None:
    vit = seeded_vit(family)
    images = random_images(vit, 2)
    with torch.inference_mode():
        expected = doubled(vit, images, NOSE.attention)
        got = apply_plan(vit, NOSE).model(images)
        plain = apply_plan(vit, DepthPlan(NOSE.attention)).model(images)
    torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-6)
    assert not torch.allclose(plain, expected, atol=1e-3)


def test_eps_matters_and_is_divided() -> None:
    vit = seeded_vit("deit").model.double()
    for module in vit.modules():
        if isinstance(module, nn.LayerNorm):
            module.eps = 0.5
    again = adapt(vit)
    images = random_images(again, 2).double()
    with torch.inference_mode():
        expected = doubled(again, images, NOSE.attention)
        torch.testing.assert_close(apply_plan(again, NOSE).model(images), expected, rtol=1e-12, atol=1e-12)


def test_it_is_done_once_and_merges() -> None:
    vit = seeded_vit("deit")
    images = random_images(vit, 2)
    first = apply_plan(vit, NOSE)
    again = apply_plan(first, DepthPlan((2, 4), (2, 3), AttentionVariant.NOSE))
    at_once = apply_plan(vit, DepthPlan((2, 4), (2, 3), AttentionVariant.NOSE))
    assert again.weights_sha256 == at_once.weights_sha256
    with torch.inference_mode():
        assert torch.equal(again.model(images), at_once.model(images))


def test_variants_are_not_mixed() -> None:
    later = apply_plan(seeded_vit("deit"), DepthPlan((4,), variant=AttentionVariant.IDENTITY))
    with pytest.raises(DepthError, match=r"variant \| got nose before an identity \| need one variant"):
        apply_plan(later, NOSE)


def test_a_norm_of_unknown_eps_is_refused() -> None:
    vit = seeded_vit("deit")
    model: Any = vit.model
    model.norm = nn.Identity()
    with pytest.raises(DepthError, match=r"variant \| got nose with a norm of the kind Identity"):
        apply_plan(vit, NOSE)
