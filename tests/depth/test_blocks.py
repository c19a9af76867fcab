"""Modules are exchanged wherever they are, and the block without attention is its MLP half."""

import torch
from torch import nn

from exporter.depth.surgery import MlpBlock, exchange, pieces
from exporter.models.base import BlockParts, MlpParts, mlp_half
from exporter.models.parts import Divided
from tests.vits import make_vit


def test_a_module_is_exchanged_wherever_it_is() -> None:
    old, new = nn.Linear(2, 2), nn.Linear(2, 2)
    network = nn.Sequential(nn.Sequential(nn.GELU(), old), old)
    assert exchange(network, old, new)
    assert network[1] is new and network[0][1] is new  # type: ignore[index]
    assert list(network.state_dict()) == ["0.1.weight", "0.1.bias", "1.weight", "1.bias"]
    assert not exchange(network, old, new)


def test_a_chain_is_its_pieces() -> None:
    one, two, three = nn.Linear(2, 2), nn.GELU(), nn.Identity()
    assert list(pieces(nn.Sequential(one, nn.Sequential(two, three)))) == [one, two, three]
    assert list(pieces(one)) == [one]


def test_the_block_ignores_what_attention_reads() -> None:
    block = make_vit("eva, bias apart").blocks[0]
    assert block.mlp is not None
    tokens = torch.randn(2, 5, 48)
    with torch.inference_mode():
        got = MlpBlock(block.mlp)(tokens, rope=torch.ones(1), attn_mask=None, is_causal=False)
        assert torch.equal(got, mlp_half(block, tokens))


def test_what_stands_in_for_attention_comes_before_the_mlp() -> None:
    block, nothing = make_vit("deit").blocks[0], nn.Identity()
    assert block.mlp is not None and block.attention is not None
    halved = MlpParts(block.attention.norm, nothing, nothing, nothing, nothing, nothing, Divided(2.0))
    tokens = torch.randn(2, 5, 48)
    with torch.inference_mode():
        got = MlpBlock(block.mlp, halved)(tokens)
        middle = tokens + block.attention.norm(tokens) / 2
        assert torch.equal(got, mlp_half(block, middle))
        assert torch.equal(got, mlp_half(BlockParts(block.whole, None, block.mlp, halved), tokens))
