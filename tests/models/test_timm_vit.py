"""The adapter: the parts compute what the whole does, and what cannot be pruned is refused with its reason."""

import pytest
import timm
import torch
from torch import nn

from exporter.errors import ModelError
from exporter.models.block import whole_block
from exporter.models.registry import adapt
from tests.vits import FAMILIES, TINY, make_vit, random_images


@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "lvvit"])
def test_the_classifiers_average_to_the_logits(family: str) -> None:
    vit = make_vit(family)
    images = random_images(vit, 2)
    with torch.inference_mode():
        tokens = vit.embed(images)
        for block in vit.blocks:
            tokens = whole_block(block, tokens)
        features = vit.features(vit.norm(tokens))
        logits = torch.stack([c.linear(features[:, c.token]) for c in vit.classifiers]).mean(0)
        torch.testing.assert_close(logits, vit.model(images), rtol=1e-5, atol=1e-5)


def test_the_spec_counts_what_stands_before_the_patches() -> None:
    assert make_vit("vit").spec.num_prefix_tokens == 1
    assert make_vit("distilled").spec.num_prefix_tokens == 2
    assert make_vit("registers").spec.num_prefix_tokens == 5
    assert make_vit("wide and low").spec.grid == (2, 6)


@pytest.mark.parametrize(
    ("name", "kwargs", "reason"),
    [
        ("vit_tiny_patch16_224", {"global_pool": ""}, "pooling ''"),
        ("vit_tiny_patch16_224", {"depth": 0}, "no blocks"),
        ("vit_tiny_patch16_224", {"block_fn": "parallel"}, "the layout ParallelScalingBlock"),
    ],
)
def test_a_refusal_says_why(name: str, kwargs: dict[str, object], reason: str) -> None:
    if kwargs.get("block_fn") == "parallel":
        kwargs = {"block_fn": timm.models.vision_transformer.ParallelScalingBlock}
    model = timm.create_model(name, **{**TINY, **kwargs})
    with pytest.raises(ModelError, match=reason):
        adapt(model)


def test_other_modules_are_refused() -> None:
    with pytest.raises(ModelError, match="a Linear, which has no adapter"):
        adapt(nn.Linear(2, 2))
