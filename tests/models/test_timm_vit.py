"""The adapter: the parts compute what the whole does, and what cannot be pruned is refused with its reason."""

from typing import Any

import pytest
import timm
import torch
from torch import nn

from exporter.errors import ModelError
from exporter.models.block import attention_half, mlp_half, whole_block
from exporter.models.registry import adapt
from exporter.ops.class_row import class_row
from tests.vits import FAMILIES, TINY, make_model, make_vit, random_images


@pytest.mark.parametrize("family", FAMILIES)
def test_the_parts_are_the_whole_bit_for_bit(family: str) -> None:
    model = make_model(family)
    vit = adapt(model)
    images = random_images(vit, 3)
    with torch.inference_mode():
        tokens = vit.embed(images)
        for block in vit.blocks:
            half, _ = attention_half(block, tokens)
            tokens = mlp_half(block, half)
        assert torch.equal(vit.classify(vit.norm(tokens)), model(images))


@pytest.mark.parametrize("family", [name for name in FAMILIES if not name.startswith("lvvit")])
def test_the_class_row_is_the_attention_of_the_class_token(family: str) -> None:
    vit = make_vit(family)
    with torch.inference_mode():
        tokens = vit.embed(random_images(vit, 2))
        for block in vit.blocks:
            _, row = attention_half(block, tokens)
            attention: Any = block.whole.attn
            attention.fused_attn = False
            seen: list[torch.Tensor] = []
            hook = attention.attn_drop.register_forward_hook(lambda *call, to=seen: to.append(call[-1]))
            tokens = whole_block(block, tokens)
            hook.remove()
            torch.testing.assert_close(row.softmax(-1), seen[0][:, :, 0], rtol=1e-4, atol=1e-6)


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


def test_preprocessing_is_the_models_own_at_its_own_size() -> None:
    preprocessing = make_vit("deit").spec.preprocessing
    assert preprocessing.input_size == (3, 32, 32)
    assert preprocessing.interpolation == "bicubic"
    assert preprocessing.mean == pytest.approx((0.485, 0.456, 0.406))


@pytest.mark.parametrize(
    ("name", "kwargs", "reason"),
    [
        ("vit_tiny_patch16_224", {"global_pool": "avg", "class_token": False}, "no class token"),
        ("vit_tiny_patch16_224", {"global_pool": "avg"}, "pooling 'avg'"),
        ("vit_tiny_patch16_224", {"num_classes": 0}, "no linear classifier"),
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


def test_the_class_row_operator_is_well_formed() -> None:
    query, key = (torch.randn(2, 3, 5, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradcheck(lambda q, k: class_row(q, k, 0.5), (query, key))


@pytest.mark.parametrize("name", ["vit_xsmall_patch16_clip_224", "eva_giant_patch14_clip_224"])
def test_a_clip_tower_gives_an_embedding_until_it_gets_a_classifier(name: str) -> None:
    tiny = {key: value for key, value in TINY.items() if key != "num_classes"}
    spec = adapt(timm.create_model(name, **tiny)).spec
    assert [(output.name, output.kind) for output in spec.outputs] == [("embedding", "embedding")]
    assert spec.num_classes == 0 and spec.head_macs == 48 * spec.outputs[0].channels
    assert adapt(timm.create_model(name, **TINY)).spec.num_classes == 7
    trained = timm.create_model(name, **tiny)
    nn.init.normal_(trained.get_parameter("head.bias"))
    assert adapt(trained).spec.num_classes == trained.num_classes


def test_a_tower_that_was_fine_tuned_on_labels_classifies() -> None:
    model = timm.create_model("vit_base_patch32_clip_224.laion2b_ft_in1k", **{**TINY, "num_classes": 1000})
    assert adapt(model).spec.num_classes == 1000
