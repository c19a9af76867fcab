"""The adapters for timm's families."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from timm.data import create_transform, resolve_data_config
from timm.layers import GluMlp, Mlp, SwiGLU
from timm.models.eva import EvaBlockPostNorm
from torch import nn

from exporter.core.base.errors import ModelError
from exporter.core.base.records import normalise
from exporter.core.base.tensor_names import LOGITS
from exporter.core.vit.spec import preprocessing_from
from exporter.core.vit.timm_adapters import (
    TimmEva,
    mlp_parts,
    outputs_of,
    why_not_head,
    why_not_mlp,
)
from exporter.data.pixels import to_input_size, to_pixels
from exporter.models.registry import adapt
from tests.vits import POOLED, TINY, TINY_SHAPE, make_model, make_vit


def test_a_projection_without_biases_is_itself() -> None:
    model: Any = make_model("eva, bias apart", qkv_bias=False)
    part = adapt(model).blocks[0].attention
    assert part is not None and part.qkv is model.blocks[0].attn.qkv


@pytest.mark.parametrize("family", ["eva02, joined, rotary", "dinov3"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_all_blocks_turn_by_the_table_of_the_models_own_grid(
    family: str, dynamic: bool
) -> None:
    model: Any = make_model(family, img_size=(16, 48), dynamic_img_size=dynamic)
    vit, expected = adapt(model), model.rope.get_embed(shape=[2, 6])
    for block in vit.blocks:
        assert block.attention is not None and block.attention.rotary is not None
        rotary = block.attention.rotary
        assert torch.equal(rotary.table, expected) and not rotary.table.requires_grad
        assert rotary.num_prefix_tokens == vit.spec.num_prefix_tokens
        assert rotary.rotate_half is (family == "dinov3")


def test_frequencies_that_are_learned_give_a_table_a_block_and_head() -> None:
    vit = make_vit("rotary a head")
    tables = []
    for block in vit.blocks:
        assert block.attention is not None and block.attention.rotary is not None
        tables.append(block.attention.rotary.table)
        assert tables[-1].shape == (3, 16, 32) and not tables[-1].requires_grad
    assert not torch.allclose(tables[0], tables[1])


@pytest.mark.parametrize(
    ("place", "name", "value", "reason"),
    [
        (
            "blocks.2.attn",
            "qkv_bias_separate",
            True,
            "block 3 with a bias that is added after the projection",
        ),
        (
            "blocks.1",
            "attn",
            nn.Identity(),
            "block 2 with attention of the kind Identity",
        ),
        (
            "blocks",
            "3",
            EvaBlockPostNorm(48, 3),
            "block 4 with the layout EvaBlockPostNorm",
        ),
        (
            "blocks.0.attn",
            "num_kv_groups",
            3,
            "block 1 with fewer heads for keys than for queries",
        ),
        ("blocks.1.attn", "gate", nn.Linear(48, 48), "block 2 with gated attention"),
        (
            "blocks.0",
            "mlp",
            nn.Linear(48, 48),
            "block 1 with an MLP of the kind Linear",
        ),
        (
            "blocks.0",
            "mlp",
            Mlp(4, use_conv=True),
            "block 1 with an MLP of the kind Mlp",
        ),
    ],
)
def test_a_refusal_says_which_block_and_why(
    place: str, name: str, value: Any, reason: str
) -> None:
    model = make_model("eva, bias apart")
    setattr(model.get_submodule(place), name, value)
    with pytest.raises(ModelError, match=reason):
        TimmEva(model, "other")


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
    mlp = MLPS[kind](12, hidden_features=20).eval()
    norm = nn.LayerNorm(12)
    out = nn.Identity()
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


def test_a_head_reads_the_class_token_or_pools_the_patches() -> None:
    got = why_not_head(
        timm.create_model("vit_tiny_patch16_224", **{**TINY, "global_pool": ""})
    )
    assert got == "pooling '', which is none of avg, max, avgmax and map with one query"


@pytest.mark.parametrize(
    ("family", "place", "name", "value", "reason"),
    [
        (
            "pooled by attention",
            "attn_pool",
            "latent_len",
            2,
            "pooling 'map', which is none",
        ),
        (
            "pooled by attention",
            "attn_pool",
            "pool",
            "avg",
            "pooling 'map', which is none",
        ),
        (
            "pooled by attention",
            "attn_pool",
            "out_features",
            96,
            "pooling 'map', which is none",
        ),
        ("vit", "", "cls_token", None, "a head on the class token, and no class token"),
    ],
)
def test_a_head_of_another_kind_is_refused(
    family: str, place: str, name: str, value: Any, reason: str
) -> None:
    model = make_model(family)
    assert why_not_head(model) == ""
    setattr(model.get_submodule(place), name, value)
    assert why_not_head(model).startswith(reason)


def test_patches_that_are_pooled_alone_are_an_embedding() -> None:
    for family in POOLED:
        vit = make_vit(family, num_classes=0)
        assert [output.name for output in vit.outputs] == [
            "embedding"
        ] and not vit.classifiers
        assert [classifier.token for classifier in make_vit(family).classifiers] == [
            None
        ]


def test_a_model_without_a_config_gives_logits() -> None:
    model = make_model()
    model.pretrained_cfg = None  # type: ignore[assignment]
    assert [output.name for output in outputs_of(model)] == [LOGITS]


@pytest.mark.parametrize(
    "name", ["vit_xsmall_patch16_clip_224", "eva_giant_patch14_clip_224"]
)
def test_a_clip_tower_gives_an_embedding_until_it_gets_a_classifier(name: str) -> None:
    spec = adapt(timm.create_model(name, **TINY_SHAPE)).spec
    assert [(output.name, output.kind) for output in spec.outputs] == [
        ("embedding", "embedding")
    ]
    assert spec.num_classes == 0 and spec.head_macs == 48 * spec.outputs[0].channels
    assert adapt(timm.create_model(name, **TINY)).spec.num_classes == 7
    trained = timm.create_model(name, **TINY_SHAPE)
    nn.init.normal_(trained.get_parameter("head.bias"))
    assert adapt(trained).spec.num_classes == trained.num_classes


def test_a_tower_that_was_fine_tuned_on_labels_classifies() -> None:
    model = timm.create_model(
        "vit_base_patch32_clip_224.laion2b_ft_in1k", **{**TINY, "num_classes": 1000}
    )
    assert adapt(model).spec.num_classes == 1000


def test_every_preprocessing_of_timms_vits_gives_timms_pixels() -> None:
    keys = ("input_size", "interpolation", "mean", "std", "crop_pct", "crop_mode")
    configs = {}
    for name in (
        *timm.list_pretrained("*vit*"),
        *timm.list_pretrained("*deit*"),
        *timm.list_pretrained("eva*"),
    ):
        config = resolve_data_config(
            pretrained_cfg=timm.get_pretrained_cfg(name).to_dict()
        )
        configs[tuple(config[key] for key in keys)] = config
    assert len(configs) > 40
    photo = Image.fromarray(
        np.random.default_rng(0).integers(0, 256, (150, 203, 3), dtype=np.uint8)
    )
    for config in configs.values():
        if max(config["input_size"]) > 400:  # as the smaller ones, and slow
            continue
        own = preprocessing_from(config, config["input_size"][1:])
        mine = normalise(to_pixels(to_input_size(photo, own)), own)
        np.testing.assert_array_equal(mine, create_transform(**config)(photo).numpy())


def test_a_model_of_grey_images_is_refused() -> None:
    with pytest.raises(ModelError, match=r"channel|in_chans|numbers"):
        adapt(timm.create_model("vit_tiny_patch16_224", in_chans=1, depth=1))
