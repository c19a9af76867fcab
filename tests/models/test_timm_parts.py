"""What timm's families share: MLPs seen as two layers, heads that are fit, and what a head gives."""

import re
from functools import partial
from typing import Any

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from timm.data import create_transform, resolve_data_config
from timm.layers import GluMlp, Mlp, SwiGLU
from torch import nn

from exporter.data.pixels import normalise, to_input_size, to_pixels
from exporter.errors import ModelError
from exporter.models.parts import AttentionPooling, MaxPooling, MeanPooling, Pooling
from exporter.models.registry import adapt
from exporter.models.spec import preprocessing_from
from exporter.models.timm_adapters import (
    mlp_parts,
    outputs_of,
    pooling_of,
    preprocessing_of,
    why_not_blocks,
    why_not_head,
    why_not_mlp,
)
from exporter.tensor_names import LOGITS
from tests.vits import POOLED, TINY, TINY_SHAPE, make_model, make_vit

MLPS = {
    "plain": partial(Mlp, act_layer=nn.ReLU),
    "normed": partial(Mlp, norm_layer=nn.LayerNorm),
    "gated": partial(GluMlp, act_layer=nn.SiLU, gate_last=False),
    "gated, normed, gate last": partial(GluMlp, norm_layer=nn.LayerNorm),
    "gate apart": SwiGLU,
    "gate apart, normed": partial(SwiGLU, norm_layer=nn.LayerNorm),
}


@pytest.mark.parametrize("kind", MLPS)
def test_the_parts_of_an_mlp_are_the_whole(kind: str) -> None:
    torch.manual_seed(0)
    mlp, norm, out = MLPS[kind](12, hidden_features=20).eval(), nn.LayerNorm(12), nn.Identity()
    assert why_not_mlp(mlp) == ""
    part = mlp_parts(norm, mlp, out)
    assert (part.norm, part.out, part.whole) == (norm, out, mlp)
    tokens = torch.randn(2, 5, 12)
    with torch.inference_mode():
        apart = part.fc2(part.hidden_norm(part.act(part.fc1(tokens))))
        torch.testing.assert_close(apart, mlp(tokens))
        # One linear layer could take fc1's place: its weight, and the bias as what it gives for nothing.
        layer = nn.functional.linear(tokens, part.fc1.weight, part.fc1(torch.zeros(12)))  # type: ignore[arg-type]
        torch.testing.assert_close(part.fc1(tokens), layer)


def test_an_mlp_of_another_make_is_refused() -> None:
    mlp = Mlp(4)
    mlp.fc2 = nn.Conv2d(4, 4, 1)
    assert why_not_mlp(mlp) == "an MLP of the kind Mlp"
    assert why_not_mlp(Mlp(4, use_conv=True)) == "an MLP of the kind Mlp"
    assert why_not_mlp(nn.Linear(4, 4)) == "an MLP of the kind Linear"


@pytest.mark.parametrize(
    ("kwargs", "reason"),
    [
        ({}, ""),
        ({"class_token": False, "global_pool": "avg"}, ""),
        ({"global_pool": "avg", "num_classes": 0}, ""),
        ({"global_pool": "avgmax"}, ""),
        ({"global_pool": "map"}, ""),
        ({"global_pool": ""}, "pooling '', which is none of avg, max, avgmax and map with one query"),
        ({"num_classes": 0}, ""),
    ],
)
def test_a_head_reads_the_class_token_or_pools_the_patches(kwargs: dict[str, object], reason: str) -> None:
    got = why_not_head(timm.create_model("vit_tiny_patch16_224", **{**TINY, **kwargs}))
    assert re.match(reason, got) and bool(got) == bool(reason)


def test_the_first_unfit_block_is_named() -> None:
    model: Any = make_model()
    assert why_not_blocks(model, lambda _block: "") == ""
    unfit = list(model.blocks)[1:3]
    assert why_not_blocks(model, lambda block: "wings" if block in unfit else "") == "block 2 with wings"
    model.blocks = nn.Sequential()
    assert why_not_blocks(model, lambda _block: "wings") == "no blocks"
    model.cls_token = None
    assert why_not_blocks(model, lambda _block: "wings") == "a head on the class token, and no class token"


@pytest.mark.parametrize(
    ("change", "value", "reason"),
    [
        ("latent_len", 2, "pooling 'map', which is none"),
        ("pool", "avg", "pooling 'map', which is none"),
        ("out_features", 96, "pooling 'map', which is none"),
    ],
)
def test_a_pooling_by_attention_of_another_kind_is_refused(change: str, value: Any, reason: str) -> None:
    model: Any = make_model("pooled by attention")
    assert why_not_head(model) == ""
    setattr(model.attn_pool, change, value)
    assert why_not_head(model).startswith(reason)


def test_a_head_of_another_kind_is_refused() -> None:
    model: Any = make_model("pooled")
    model.head = nn.Bilinear(2, 2, 2)
    assert why_not_head(model) == "a head of the kind Bilinear"


@pytest.mark.parametrize(
    ("family", "kind", "skipped"),
    [
        ("vit", None, 0),
        ("pooled", MeanPooling, 0),
        ("pooled, registers", MaxPooling, 4),
        ("pooled by attention", AttentionPooling, 0),
        ("eva02, pooled", MeanPooling, 1),
        ("pe, pooled by attention", AttentionPooling, 0),
    ],
)
def test_poolings_are_the_models(family: str, kind: type[Pooling] | None, skipped: int) -> None:
    pooling = pooling_of(make_model(family))
    assert (pooling if kind is None else type(pooling)) is kind
    assert pooling is None or pooling.skipped == skipped


def test_patches_that_are_pooled_alone_are_an_embedding() -> None:
    for family in POOLED:
        vit = make_vit(family, num_classes=0)
        assert [output.name for output in vit.outputs] == ["embedding"] and not vit.classifiers
        assert [each.token for each in make_vit(family).classifiers] == [None]


def test_a_model_without_a_config_gives_logits() -> None:
    model = make_model()
    model.pretrained_cfg = None  # type: ignore[assignment]
    assert [output.name for output in outputs_of(model)] == [LOGITS]


def test_preprocessing_is_the_models_own_at_its_own_size() -> None:
    preprocessing = make_vit("deit").spec.preprocessing
    assert preprocessing.input_size == (3, 32, 32)
    assert preprocessing.interpolation == "bicubic"
    assert preprocessing.mean == pytest.approx((0.485, 0.456, 0.406))


@pytest.mark.parametrize("name", ["vit_xsmall_patch16_clip_224", "eva_giant_patch14_clip_224"])
def test_a_clip_tower_gives_an_embedding_until_it_gets_a_classifier(name: str) -> None:
    spec = adapt(timm.create_model(name, **TINY_SHAPE)).spec
    assert [(output.name, output.kind) for output in spec.outputs] == [("embedding", "embedding")]
    assert spec.num_classes == 0 and spec.head_macs == 48 * spec.outputs[0].channels
    assert adapt(timm.create_model(name, **TINY)).spec.num_classes == 7
    trained = timm.create_model(name, **TINY_SHAPE)
    nn.init.normal_(trained.get_parameter("head.bias"))
    assert adapt(trained).spec.num_classes == trained.num_classes


def test_a_tower_that_was_fine_tuned_on_labels_classifies() -> None:
    model = timm.create_model("vit_base_patch32_clip_224.laion2b_ft_in1k", **{**TINY, "num_classes": 1000})
    assert adapt(model).spec.num_classes == 1000


def test_every_preprocessing_of_timms_vits_gives_timms_pixels() -> None:
    keys = ("input_size", "interpolation", "mean", "std", "crop_pct", "crop_mode")
    configs = {}
    for name in (
        *timm.list_pretrained("*vit*"),
        *timm.list_pretrained("*deit*"),
        *timm.list_pretrained("eva*"),
    ):
        config = resolve_data_config(pretrained_cfg=timm.get_pretrained_cfg(name).to_dict())
        configs[tuple(config[key] for key in keys)] = config
    assert len(configs) > 40
    photo = Image.fromarray(np.random.default_rng(0).integers(0, 256, (150, 203, 3), dtype=np.uint8))
    for config in configs.values():
        if max(config["input_size"]) > 400:  # as the smaller ones, and slow
            continue
        own = preprocessing_from(config, config["input_size"][1:])
        mine = normalise(to_pixels(to_input_size(photo, own)), own)
        np.testing.assert_array_equal(mine, create_transform(**config)(photo).numpy())


def test_a_model_of_grey_images_is_refused() -> None:
    with pytest.raises(ModelError, match=r"channel|in_chans|numbers"):
        adapt(timm.create_model("vit_tiny_patch16_224", in_chans=1, depth=1))


def test_preprocessing_takes_what_is_given_over_the_models_own() -> None:
    model = make_model("wide and low")
    own, other = (
        preprocessing_of(model, {}),
        preprocessing_of(model, {"crop_pct": 0.5, "std": (0.1, 0.2, 0.3)}),
    )
    assert own.input_size == other.input_size == (3, 16, 48)
    assert (other.crop_pct, other.std, other.mean) == (0.5, (0.1, 0.2, 0.3), own.mean)
