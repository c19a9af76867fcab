"""The parts of families, and heads that pool."""

import copy
from typing import Any

import pytest
import torch
from timm.layers import AttentionPoolLatent
from timm.models.eva import Eva

from exporter.core.vit.parts import AttentionPooling, MaxPooling, MeanPooling, Pooling
from exporter.core.vit.protocol import attention_half, mlp_half, whole_block
from exporter.models.registry import adapt
from tests.rounding import assert_as_accurate
from tests.vits import make_model, make_vit

ROTARY = ("eva02, joined, rotary", "rotary a head", "dinov3")
POSITIONS = torch.tensor([[0, 3, 7, 9, 15], [1, 2, 3, 4, 14]])


@pytest.mark.parametrize("family", ROTARY)
def test_survivors_are_turned_by_their_own_positions(family: str) -> None:
    model: Any = make_model(family)
    assert isinstance(model, Eva)
    for parameter in model.blocks[1].attn.parameters():
        parameter.data *= 5  # so that each position is seen
    vit = adapt(model)
    prefix, block = vit.spec.num_prefix_tokens, vit.blocks[1]
    table = model.rope.get_embed(shape=list(vit.spec.grid))
    in_double = copy.deepcopy(model.blocks[1]).double()
    with torch.inference_mode():
        tokens = torch.randn(2, prefix + 5, 48)
        half, _ = attention_half(block, tokens, POSITIONS)
        together = mlp_half(block, half)
        assert torch.equal(whole_block(block, tokens, POSITIONS), together)
        for image, positions in enumerate(POSITIONS):
            rows = table[1][:, positions] if model.rope_mixed else table[positions]
            own = tokens[image : image + 1]
            alone = model.blocks[1](own, rope=rows)[0]
            exact = in_double(own.double(), rope=rows.double())[0]
            assert_as_accurate(together[image], alone, exact)


def made(kind: str) -> Pooling:
    vit = make_vit("pooled by attention")
    assert isinstance(vit.pooling, AttentionPooling)
    rows: dict[str, Pooling] = {
        "mean": MeanPooling(1),
        "max": MaxPooling(1, with_mean=False),
        "avgmax": MaxPooling(1, with_mean=True),
        "attention": AttentionPooling(1, vit.pooling.attention),
    }
    return rows[kind]


@pytest.mark.parametrize("kind", ["mean", "max", "avgmax", "attention"])
def test_a_token_of_size_two_is_two_patches_and_one_of_none_is_padding(
    kind: str,
) -> None:
    pooling, tokens = made(kind), torch.randn(2, 6, 48)
    sizes = torch.tensor([[1.0, 1, 2, 1, 0, 0], [1, 3, 1, 1, 1, 1]])
    with torch.inference_mode():
        got = pooling(tokens, sizes)
        for image in range(2):
            long = tokens[image].repeat_interleave(sizes[image].long(), dim=0)[None]
            expected = pooling(long, torch.ones_like(long[..., 0]))
            torch.testing.assert_close(got[image, None], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kwargs", [{}, {"qk_norm": True}, {"qkv_bias": False}])
def test_the_probe_is_the_attention_of_the_query(kwargs: dict[str, bool]) -> None:
    torch.manual_seed(0)
    attention = AttentionPoolLatent(
        48, num_heads=3, norm_layer=torch.nn.LayerNorm, **kwargs
    ).eval()
    attention.fused_attn = False
    seen = []
    attention.q_norm.register_forward_hook(lambda *call: seen.append(call[-1]))
    attention.k_norm.register_forward_hook(lambda *call: seen.append(call[-1]))
    tokens = torch.randn(2, 5, 48)
    with torch.inference_mode():
        attention(tokens)
        query, key = seen
        expected = (query @ key.transpose(-2, -1) * attention.scale)[:, :, 0]
        got = AttentionPooling(0, attention).probe(tokens)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
