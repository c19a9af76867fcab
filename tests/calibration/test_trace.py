"""The traced pass is the model's own, every value of it what its name says, and the caller's model left alone."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from exporter.calibration.trace import AttentionTrace, in_dtype, trace
from exporter.core.vit.protocol import (
    AttentionParts,
    attention_half,
    heads,
    project,
    whole_block,
)
from tests.calibration.samples import VARIANTS, frozen_images, tiny_vit
from tests.calibration.whole_attention import matrices
from tests.rows import row_of
from tests.vits import cut_vit, random_images


def attention_of(part: AttentionParts, seen: AttentionTrace) -> Tensor:
    """The branch from what the trace says of query, key and value."""
    weights = (seen.query @ seen.key.transpose(-2, -1) / part.head_dim**0.5).softmax(-1)
    merged = (weights @ seen.value).transpose(1, 2).flatten(2)
    return part.out(part.proj(part.context_norm(merged)))


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_block_says_what_it_computed(variant: str) -> None:
    vit = in_dtype(tiny_vit(variant), torch.float64)
    seen = trace(vit, frozen_images(2, vit.spec.preprocessing.input_size[1:]))
    tokens = vit.embed(frozen_images(2, vit.spec.preprocessing.input_size[1:]))
    for block, here in zip(vit.blocks, seen.blocks, strict=True):
        part, attention, (mlp,) = block.attention, here.attention, here.token_wise
        assert part is not None and attention is not None and block.mlp is not None
        torch.testing.assert_close(attention.tokens, tokens)
        for got, expected in zip(
            (attention.query, attention.key, attention.value),
            heads(block, project(block, tokens)),
            strict=True,
        ):
            torch.testing.assert_close(got, expected)
        torch.testing.assert_close(
            part.q_norm(attention.raw_query), attention.normed_query
        )
        torch.testing.assert_close(part.k_norm(attention.raw_key), attention.normed_key)
        torch.testing.assert_close(attention.branch, attention_of(part, attention))
        count = vit.spec.num_class_tokens
        row = row_of(attention_half(block, tokens)[1], count)
        products, _ = matrices(attention)
        rows = products[:, :, :count].flatten(1, 2)
        torch.testing.assert_close(rows * part.head_dim**-0.5, row)
        torch.testing.assert_close(mlp.tokens, tokens + attention.branch)
        torch.testing.assert_close(
            mlp.fc2_output, block.mlp.whole(block.mlp.norm(mlp.tokens))
        )
        torch.testing.assert_close(block.mlp.fc2(mlp.fc2_input), mlp.fc2_output)
        torch.testing.assert_close(here.output, mlp.tokens + mlp.branch)
        tokens = whole_block(block, tokens)
        torch.testing.assert_close(here.output, tokens)
    torch.testing.assert_close(seen.normed, vit.norm(tokens))
    torch.testing.assert_close(seen.logits, vit.classify(seen.normed))


def test_a_part_that_a_block_lacks_has_no_values_and_adds_nothing() -> None:
    vit = cut_vit()
    images = random_images(vit, 2)
    seen = trace(vit, images)
    lacks = [(block.attention is None, not block.token_wise) for block in seen.blocks]
    assert lacks == [
        (False, False),
        (True, False),
        (False, False),
        (False, True),
        (False, False),
    ]
    second, fourth = seen.blocks[1], seen.blocks[3]
    assert fourth.attention is not None
    assert torch.equal(second.token_wise[0].tokens, seen.blocks[0].output)
    assert torch.equal(fourth.output, fourth.attention.tokens + fourth.attention.branch)
    torch.testing.assert_close(seen.logits, vit.model(images), rtol=1e-4, atol=1e-4)


def test_nothing_is_kept_for_gradients_and_images_take_the_weights_dtype() -> None:
    vit = tiny_vit()
    vit.model.requires_grad_(True)
    seen = trace(vit, frozen_images(1))
    assert not seen.logits.requires_grad
    assert seen.logits.dtype == torch.float32
    assert (
        trace(in_dtype(vit, torch.float64), frozen_images(1)).logits.dtype
        == torch.float64
    )
    assert isinstance(vit.model, nn.Module) and {
        parameter.dtype for parameter in vit.model.parameters()
    } == {torch.float32}


def test_a_copy_in_another_dtype_is_made_only_where_needed() -> None:
    vit = tiny_vit()
    double = in_dtype(vit, torch.float64)
    assert in_dtype(double, torch.float64) is double
    model: Any = double.model
    assert double.blocks[0].mlp is not None
    assert double.blocks[0].mlp.fc1 is model.blocks[0].mlp.fc1
    assert model.blocks[0].mlp.fc1.weight.dtype == torch.float64
