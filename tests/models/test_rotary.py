"""Rotary positions travel with the survivors: checked against timm's own block, given each patch's own rows."""

from typing import Any

import pytest
import torch
from timm.models.eva import Eva

from exporter.models.block import attention_half, mlp_half, whole_block
from exporter.models.parts import Gate
from exporter.models.registry import adapt
from tests.vits import make_model, make_vit, random_images

ROTARY = ("eva02, joined, rotary", "rotary a head", "dinov3")
POSITIONS = torch.tensor([[0, 3, 7, 9, 15], [1, 2, 3, 4, 14]])


@pytest.mark.parametrize("family", ROTARY)
def test_survivors_are_turned_by_their_own_positions(family: str) -> None:
    model: Any = make_model(family)
    assert isinstance(model, Eva)
    vit = adapt(model)
    prefix, block = vit.spec.num_prefix_tokens, vit.blocks[1]
    table = model.rope.get_embed(shape=list(vit.spec.grid))
    with torch.inference_mode():
        tokens = torch.randn(2, prefix + 5, 48)
        half, _ = attention_half(block, tokens, POSITIONS)
        together = mlp_half(block, half)
        assert torch.equal(whole_block(block, tokens, POSITIONS), together)
        for image, positions in enumerate(POSITIONS):
            rows = table[1][:, positions] if model.rope_mixed else table[positions]
            alone = model.blocks[1](tokens[image : image + 1], rope=rows)[0]
            torch.testing.assert_close(together[image], alone, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("family", ROTARY)
def test_the_first_patches_positions_are_not_good_enough(family: str) -> None:
    vit = make_vit(family)
    with torch.inference_mode():
        tokens = vit.embed(random_images(vit, 2))[:, : vit.spec.num_prefix_tokens + 5]
        right, _ = attention_half(vit.blocks[0], tokens, POSITIONS)
        wrong, _ = attention_half(vit.blocks[0], tokens, torch.arange(5).expand(2, -1))
    assert not torch.allclose(right, wrong)


@pytest.mark.parametrize("gate_last", [True, False])
def test_a_gate_activates_one_half(gate_last: bool) -> None:
    hidden = torch.tensor([[1.0, 2.0, -3.0, 4.0]])
    expected = [[0.0, 8.0]] if gate_last else [[-3.0, 8.0]]
    assert Gate(torch.nn.ReLU(), gate_last=gate_last)(hidden).tolist() == expected
