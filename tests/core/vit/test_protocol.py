"""The interface of a ViT, and one block in two halves."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from exporter.core.base.errors import ModelError
from exporter.core.base.targets import ONNXRUNTIME
from exporter.core.lower.pipeline import lower
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.prune.scores import intra_score
from exporter.core.schedule.plan import keep_everything
from exporter.core.vit.protocol import (
    add_attention,
    attend,
    attention_half,
    heads,
    mlp_half,
    project,
    whole_block,
)
from exporter.models.registry import adapt
from tests.rows import row_of
from tests.vits import FAMILIES, POOLED, cut_vit, make_model, make_vit, random_images


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("family", [*FAMILIES, *POOLED])
def test_the_parts_are_the_whole_bit_for_bit(family: str, *, training: bool) -> None:
    """Also of a model that is trained, whose parts drop out what the whole does."""
    model = make_model(family)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.5
    for name, parameter in model.named_parameters():
        if "bias" in name:
            nn.init.normal_(parameter)
    vit = adapt(model)
    model.train(training)
    images = random_images(vit, 3)
    with torch.inference_mode():
        torch.manual_seed(0)
        tokens = vit.embed(images)
        for block in vit.blocks:
            half, _ = attention_half(block, tokens)
            tokens = mlp_half(block, half)
        normed = vit.norm(tokens)
        drawn = torch.get_rng_state()
        logits = vit.classify(normed)
        torch.manual_seed(0)
        assert torch.equal(logits, model(images))
        if vit.pooling is not None:
            torch.set_rng_state(drawn)
            pooled = vit.pooling(normed, torch.ones_like(normed[..., 0]))
            torch.testing.assert_close(vit.classify_pooled(pooled), logits)


@pytest.mark.parametrize(
    "family", [name for name in FAMILIES if not name.startswith("lvvit")]
)
def test_the_class_row_is_the_attention_of_the_class_tokens(family: str) -> None:
    vit = make_vit(family)
    classifying = vit.spec.num_class_tokens
    with torch.inference_mode():
        tokens = vit.embed(random_images(vit, 2))
        for block in vit.blocks:
            row = row_of(attention_half(block, tokens)[1], classifying)
            attention: Any = block.whole.attn
            attention.fused_attn = False
            seen: list[torch.Tensor] = []
            hook = attention.attn_drop.register_forward_hook(
                lambda *call, to=seen: to.append(call[-1])
            )
            tokens = whole_block(block, tokens)
            hook.remove()
            expected = seen[0][:, :, :classifying].flatten(1, 2)
            torch.testing.assert_close(row.softmax(-1), expected, rtol=1e-4, atol=1e-6)


def test_a_token_of_size_two_is_attended_to_as_two() -> None:
    """Attention, class row and score over sized tokens are those over tokens that stand there so many times."""
    vit = make_vit("registers")
    block, prefix = vit.blocks[0], vit.spec.num_prefix_tokens
    tokens = torch.randn(2, prefix + 5, vit.spec.dim)
    sizes = torch.ones(2, prefix + 5)
    sizes[:, prefix + 3 :] = 2
    with torch.inference_mode():
        context, seen = attend(block, project(block, tokens), key_bias=sizes.log())
        twice = torch.cat([tokens, tokens[:, prefix + 3 :]], dim=1)
        expected, long = attend(block, project(block, twice))
        torch.testing.assert_close(context, expected[:, : prefix + 5])
        score, parts = (intra_score(row_of(each), prefix) for each in (seen, long))
    torch.testing.assert_close(score[:, :3], parts[:, :3])
    torch.testing.assert_close(score[:, 3:], parts[:, 3:5] + parts[:, 5:])


def test_a_bias_reaches_live_tokens_alone() -> None:
    block = make_vit().blocks[0]
    tokens, live = torch.randn(1, 6, 48), torch.arange(6)[None] < 4
    with torch.inference_mode():
        masked, _ = attend(block, project(block, tokens), None, live, torch.zeros(1, 6))
        short, _ = attend(block, project(block, tokens[:, :4]))
    torch.testing.assert_close(masked[:, :4], short)


def test_dead_tokens_are_attended_to_by_none_and_stay_in_the_row() -> None:
    block = make_vit("registers").blocks[1]
    tokens, live = torch.randn(2, 9, 48), torch.arange(9) < torch.tensor([[9], [6]])
    with torch.inference_mode():
        values, seen = attention_half(block, tokens, live=live)
        alone, short = attention_half(block, tokens[1:, :6])
        row, whole_row = row_of(seen), row_of(attention_half(block, tokens)[1])
    torch.testing.assert_close(values[1:, :6], alone)
    torch.testing.assert_close(row[1:, :, :6], row_of(short))
    torch.testing.assert_close(row, whole_row)


def test_a_part_that_is_missing_adds_nothing_or_is_asked_for_in_vain() -> None:
    no_attention, no_mlp = cut_vit().blocks[1], cut_vit().blocks[3]
    tokens = torch.randn(1, 17, 48)
    with torch.inference_mode():
        assert mlp_half(no_mlp, tokens) is tokens
        assert torch.equal(
            attention_half(no_mlp, tokens)[0], whole_block(no_mlp, tokens)
        )
        assert torch.equal(
            mlp_half(no_attention, tokens), whole_block(no_attention, tokens)
        )
    for half in (attention_half, project, attend, heads):
        with pytest.raises(ValueError, match="without an attention part"):
            half(no_attention, tokens)
    with pytest.raises(ValueError, match="without an attention part"):
        add_attention(replace(no_mlp, attention=None), tokens, tokens)


def test_an_adapter_that_fixes_the_batch_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    vit = make_vit()
    embed = vit.embed
    monkeypatch.setattr(
        vit, "embed", lambda images: embed(images) + torch.zeros(len(images), 1, 1)
    )
    with pytest.raises(
        ModelError, match=r"tiny \| got a size that is the batch's .*len\(images\)"
    ):
        lower(PrunedViT(vit, keep_everything(vit.spec)), ONNXRUNTIME)
