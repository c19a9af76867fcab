"""The adapters for timm's families."""

from typing import Any

import pytest
import timm
import torch
from timm.models.eva import Eva, EvaBlockPostNorm
from torch import Tensor, nn
from torch.nn import functional as F

from exporter.errors import ModelError
from exporter.models.base import whole_block
from exporter.models.parts import JoinedLinear
from exporter.models.registry import adapt
from exporter.models.timm_adapters import BiasedQkv, TimmEva
from tests.vits import FAMILIES, TINY, make_model, make_vit, random_images


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


# How each member holds its projection of query, key and value.
PROJECTIONS: dict[str, type[nn.Module]] = {
    "eva, bias apart": BiasedQkv,
    "eva02, joined, rotary": JoinedLinear,
    "rotary a head": nn.Linear,
    "dinov3": BiasedQkv,
}


@pytest.mark.parametrize("family", PROJECTIONS)
def test_the_projection_is_that_of_its_three_parts(family: str) -> None:
    model: Any = make_model(family)
    for name, parameter in model.named_parameters():
        if "bias" in name:
            nn.init.normal_(parameter)
    part = adapt(model).blocks[0].attention
    assert part is not None and type(part.qkv) is PROJECTIONS[family]
    attention, tokens = model.blocks[0].attn, torch.randn(2, 3, 48)
    with torch.inference_mode():
        parts = thirds(attention)
        assert torch.equal(part.qkv.weight, torch.cat([weight for weight, _ in parts]))
        expected = torch.cat([F.linear(tokens, weight, bias) for weight, bias in parts], dim=-1)
        torch.testing.assert_close(part.qkv(tokens), expected)


def thirds(attention: Any) -> list[tuple[Tensor, Tensor | None]]:
    """Weight and bias of query, key and value."""
    if attention.qkv is None:
        linears = (attention.q_proj, attention.k_proj, attention.v_proj)
        return [(linear.weight, linear.bias) for linear in linears]
    weights = attention.qkv.weight.chunk(3)
    if attention.qkv.bias is not None:
        return list(zip(weights, attention.qkv.bias.chunk(3), strict=True))
    return list(zip(weights, (attention.q_bias, None, attention.v_bias), strict=True))


def test_a_projection_without_biases_is_itself() -> None:
    model: Any = make_model("eva, bias apart", qkv_bias=False)
    part = adapt(model).blocks[0].attention
    assert part is not None and part.qkv is model.blocks[0].attn.qkv


@pytest.mark.parametrize("family", ["eva02, joined, rotary", "dinov3"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_all_blocks_turn_by_the_table_of_the_models_own_grid(family: str, dynamic: bool) -> None:
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


def test_positions_that_are_embedded_alone_turn_nothing() -> None:
    blocks = make_vit("eva, bias apart").blocks
    assert [block.attention.rotary for block in blocks if block.attention is not None] == [None] * 4


def test_scales_of_both_branches_are_those_of_the_block() -> None:
    model: Any = make_model("dinov3")
    with torch.no_grad():
        for place, gamma in enumerate((model.blocks[0].gamma_1, model.blocks[0].gamma_2), start=2):
            gamma.fill_(place)
    block, branch = adapt(model).blocks[0], torch.randn(1, 2, 48)
    assert block.attention is not None and block.mlp is not None
    torch.testing.assert_close(block.attention.out(branch), 2 * branch)
    torch.testing.assert_close(block.mlp.out(branch), 3 * branch)
    plain = make_vit("eva02, joined, rotary").blocks[0]
    assert plain.attention is not None
    assert torch.equal(plain.attention.out(branch), branch)


def separate_bias(model: Any) -> None:
    model.blocks[2].attn.qkv_bias_separate = True


def other_attention(model: Any) -> None:
    model.blocks[1].attn = nn.Identity()


def other_block(model: Any) -> None:
    model.blocks[3] = EvaBlockPostNorm(48, 3)


def fewer_keys(model: Any) -> None:
    model.blocks[0].attn.num_kv_groups = 3


def gate(model: Any) -> None:
    model.blocks[1].attn.gate = nn.Linear(48, 48)


def other_mlp(model: Any) -> None:
    model.blocks[0].mlp = nn.Linear(48, 48)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (separate_bias, "block 3 with a bias that is added after the projection"),
        (other_attention, "block 2 with attention of the kind Identity"),
        (other_block, "block 4 with the layout EvaBlockPostNorm"),
        (fewer_keys, "block 1 with fewer heads for keys than for queries"),
        (gate, "block 2 with gated attention"),
        (other_mlp, "block 1 with an MLP of the kind Linear"),
    ],
)
def test_a_refusal_says_which_block_and_why(change: Any, reason: str) -> None:
    model: Any = make_model("eva, bias apart")
    change(model)
    with pytest.raises(ModelError, match=reason):
        TimmEva(model, "other")


def test_a_head_that_pools_in_an_unknown_way_is_refused() -> None:
    model = timm.create_model("eva_giant_patch14_clip_224", **{**TINY, "global_pool": ""})
    assert isinstance(model, Eva)
    with pytest.raises(ModelError, match=r"other \| got pooling ''.* need a ViT whose head"):
        TimmEva(model, "other")
