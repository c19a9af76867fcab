"""A depth-pruned model: exact, smaller by what the papers say, and ordinary to every later stage."""

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from typing_extensions import override

from exporter.calibration.trace import in_dtype, trace
from exporter.core.base.errors import DepthError
from exporter.core.base.targets import ONNXRUNTIME
from exporter.core.base.vocabulary import AttentionVariant, Method
from exporter.core.lower.pipeline import lower
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.schedule.macs import dense_macs
from exporter.core.schedule.plan import manual_schedule
from exporter.core.schedule.policy import resolve
from exporter.core.schedule.prune import Prune
from exporter.core.verify.reference import check
from exporter.core.vit.protocol import (
    PrunableViT,
    attention_half,
    mlp_half,
)
from exporter.depth.plan import DepthPlan
from exporter.depth.surgery import apply_plan
from exporter.models.registry import adapt, describe, trainable
from exporter.models.request import ModelRequest
from tests.core.prune.adaptive import inter_of
from tests.depth.models import MERGED_FAMILIES, seeded_vit
from tests.rounding import assert_whole_at_rates_of_one
from tests.versions import runs_in_double
from tests.vits import make_vit, random_images, varied_images

PLAN = DepthPlan((2, 3), (1, 3))
IDENTITY = DepthPlan((2, 3), (1, 3), AttentionVariant.IDENTITY)
PLANS = pytest.mark.parametrize(
    "plan", [PLAN, IDENTITY], ids=lambda plan: str(plan.variant)
)


def distance(got: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest difference over the largest value."""
    return float((got - expected).abs().max() / expected.abs().max())


@PLANS
@pytest.mark.parametrize("family", MERGED_FAMILIES)
def test_merged_is_unmerged(family: str, plan: DepthPlan) -> None:
    runs_in_double(family)
    vit = seeded_vit(family)
    images = random_images(vit, 4)
    with torch.inference_mode():
        apart, merged = (
            apply_plan(vit, plan, unmerged=unmerged) for unmerged in (True, False)
        )
        assert distance(merged.model(images), apart.model(images)) < 1e-5
        double = in_dtype(vit, torch.float64)
        apart, merged = (
            apply_plan(double, plan, unmerged=unmerged) for unmerged in (True, False)
        )
        assert (
            distance(merged.model(images.double()), apart.model(images.double()))
            < 1e-12
        )
        assert (
            distance(merged.model(images.double()), double.model(images.double()))
            > 1e-2
        )


@PLANS
@pytest.mark.parametrize("family", MERGED_FAMILIES)
@pytest.mark.parametrize("unmerged", [False, True])
def test_every_way_through_the_blocks_is_the_network(
    family: str, unmerged: bool, plan: DepthPlan
) -> None:
    vit = apply_plan(seeded_vit(family), plan, unmerged=unmerged)
    images = random_images(vit, 3)
    with torch.inference_mode():
        expected, tokens = vit.model(images), vit.embed(images)
        for block in vit.blocks:
            tokens = mlp_half(
                block,
                tokens if block.attention is None else attention_half(block, tokens)[0],
            )
        assert torch.equal(vit.classify(vit.norm(tokens)), expected)
        assert torch.equal(trace(vit, images).logits, expected)
    assert_whole_at_rates_of_one(vit, images)


class Through(nn.Module):
    """In place of an attention: what attention reads."""

    @override
    def forward(self, normed: torch.Tensor, **_: Any) -> torch.Tensor:
        return normed


@pytest.mark.parametrize("family", ["deit", "deit3, layer scale", "lvvit"])
def test_the_identity_is_the_network_whose_attention_returns_what_it_reads(
    family: str,
) -> None:
    vit = seeded_vit(family)
    images, whole = random_images(vit, 2), copy.deepcopy(vit.model)
    for layer in (2, 3):
        whole.get_submodule(f"blocks.{layer - 1}").attn = Through()
    plan = DepthPlan((2, 3), variant=AttentionVariant.IDENTITY)
    smaller = apply_plan(vit, plan)
    with torch.inference_mode():
        assert torch.equal(smaller.model(images), whole(images))
    assert smaller.spec == apply_plan(vit, DepthPlan((2, 3))).spec, (
        "a norm and an addition cost no MACs"
    )


def test_the_spec_and_the_digest_are_those_of_what_is_left() -> None:
    vit = seeded_vit()
    pruned, apart = apply_plan(vit, PLAN), apply_plan(vit, PLAN, unmerged=True)
    macs = [
        (block.attention_token_macs, block.mlp_token_macs)
        for block in pruned.spec.blocks
    ]
    attention, mlp, one = 4 * 48**2, 8 * 48**2, 48**2
    assert macs == [(attention, one), (0, mlp), (0, one), (attention, mlp)]
    assert pruned.spec.attention_layers == apart.spec.attention_layers == (1, 4)
    only_activations = apply_plan(vit, DepthPlan((), (1,)), unmerged=True)
    assert only_activations.model.state_dict().keys() == vit.model.state_dict().keys()
    assert (
        len({each.weights_sha256 for each in (vit, pruned, apart, only_activations)})
        == 4
    )
    assert not any(parameter.requires_grad for parameter in pruned.model.parameters())
    assert not any(module.training for module in pruned.model.modules())


@pytest.mark.parametrize("variant", AttentionVariant, ids=str)
def test_it_is_pruned_further_and_merged_after_training(
    variant: AttentionVariant,
) -> None:
    vit, plan = seeded_vit(), replace(PLAN, variant=variant)
    images = random_images(vit, 2)
    step = apply_plan(
        apply_plan(vit, DepthPlan((2,), (1,), plan.variant), unmerged=True),
        plan,
        unmerged=True,
    )
    at_once = apply_plan(vit, plan, unmerged=True)
    assert step.weights_sha256 == at_once.weights_sha256
    with trainable(step):
        step.model(images).sum().backward()
        assert all(parameter.grad is not None for parameter in step.model.parameters())
        with torch.no_grad():
            for parameter in step.model.parameters():
                parameter.add_(0.01)
    merged = apply_plan(step, plan)
    with torch.inference_mode():
        assert distance(merged.model(images), step.model(images)) < 1e-5
        assert distance(merged.model(images), at_once.model(images)) > 1e-3


def test_the_shipped_plan_of_deit_base() -> None:
    # as published, counted from 0
    attention, activation = ((0, 3, 7, 8, 11), (2, 7, 8, 10, 11))
    plan = DepthPlan(
        tuple(layer + 1 for layer in attention),
        tuple(layer + 1 for layer in activation),
    )
    vit = apply_plan(describe(ModelRequest("deit_base_patch16_224")), plan)
    assert dense_macs(vit.spec.as_it_came).gmacs == pytest.approx(10.88, abs=0.005)
    assert vit.weights_sha256 == ""
    parameters = sum(parameter.numel() for parameter in vit.model.parameters())
    assert parameters == 86_567_656 - 5 * (2_362_368 + 1_536) - 5 * (
        4_722_432 - 590_592 + 1_536
    )


@pytest.mark.ort
@pytest.mark.parametrize(
    ("family", "method", "variant"),
    [
        ("deit", Method.STAR, AttentionVariant.REMOVE),
        ("deit", Method.A_STAR, AttentionVariant.REMOVE),
        ("deit3, layer scale", Method.A_STAR, AttentionVariant.IDENTITY),
        ("lvvit", Method.STAR, AttentionVariant.NOSE),
    ],
)
def test_it_is_lowered_and_agrees(
    family: str, method: Method, variant: AttentionVariant
) -> None:
    vit = apply_plan(
        seeded_vit(family), DepthPlan(PLAN.attention, PLAN.activation, variant)
    )
    settings = Prune("fused", alpha=0.5, method=method, reduce="drop")
    schedule = manual_schedule(vit.spec, {1: 0.6, 4: 0.7}, resolve(settings))
    pruned = PrunedViT(vit, schedule, inter_of(vit), ONNXRUNTIME.layouts[0]).eval()
    lowered = lower(pruned, ONNXRUNTIME)
    report = check(pruned, lowered, varied_images(vit, 16).numpy(), threads=1)
    assert report.passed, report.checks
    kinds = [node.op_type for node in lowered.graph.node]
    assert sum("Gelu" in kind or "Erf" in kind for kind in kinds) == 2


def test_a_block_that_the_network_hides() -> None:
    vit = make_vit("vit")
    model: Any = vit.model
    model.blocks = nn.Sequential(*[nn.Identity() for _ in range(4)])
    with pytest.raises(
        DepthError, match=r"layer 1 \| got a part that is no module of the network"
    ):
        apply_plan(vit, DepthPlan((1,)))


NOSE = DepthPlan((2, 4), variant=AttentionVariant.NOSE)


def doubled(vit: PrunableViT, images: Tensor, layers: tuple[int, ...]) -> Tensor:
    """The network with 2x in place of the attention of some layers, written out."""
    tokens = vit.embed(images)
    for layer, block in enumerate(vit.blocks, start=1):
        mlp: Any = block.mlp
        if layer in layers:
            tokens = 2 * tokens
            tokens = tokens + mlp.out(mlp.whole(mlp.norm(tokens)))
        elif block.attention is not None and block.attention.rotary is not None:
            tokens = block.whole(tokens, rope=block.attention.rotary.at(None))
        else:
            tokens = block.whole(tokens)
    return vit.classify(vit.norm(tokens))


@pytest.mark.parametrize("family", MERGED_FAMILIES)
def test_it_is_twice_the_tokens(family: str) -> None:
    vit = seeded_vit(family)
    images = random_images(vit, 2)
    with torch.inference_mode():
        expected = doubled(vit, images, NOSE.attention)
        got = apply_plan(vit, NOSE).model(images)
        plain = apply_plan(vit, DepthPlan(NOSE.attention)).model(images)
    torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-6)
    assert not torch.allclose(plain, expected, atol=1e-3)


def test_eps_matters_and_is_divided() -> None:
    vit = seeded_vit("deit").model.double()
    for module in vit.modules():
        if isinstance(module, nn.LayerNorm):
            module.eps = 0.5
    again = adapt(vit)
    images = random_images(again, 2).double()
    with torch.inference_mode():
        expected = doubled(again, images, NOSE.attention)
        torch.testing.assert_close(
            apply_plan(again, NOSE).model(images), expected, rtol=1e-12, atol=1e-12
        )


def test_variants_are_not_mixed() -> None:
    later = apply_plan(
        seeded_vit("deit"), DepthPlan((4,), variant=AttentionVariant.IDENTITY)
    )
    with pytest.raises(
        DepthError, match=r"variant \| got nose before an identity \| need one variant"
    ):
        apply_plan(later, NOSE)


def test_a_norm_of_unknown_eps_is_refused() -> None:
    vit = seeded_vit("deit")
    model: Any = vit.model
    model.norm = nn.Identity()
    with pytest.raises(
        DepthError, match=r"variant \| got nose with a norm of the kind Identity"
    ):
        apply_plan(vit, NOSE)
