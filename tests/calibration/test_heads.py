"""Where relevance starts: at class tokens or the mean of the patches, for a class or an embedding's length."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from exporter.calibration.backward import (
    cam_of_outputs,
    explainable,
    gradient_of_outputs,
    share_of_outputs,
    top_outputs,
)
from exporter.calibration.trace import in_dtype, trace
from exporter.core.base.vocabulary import AttentionVariant
from exporter.core.vit.protocol import PrunableViT
from exporter.depth.plan import DepthPlan
from exporter.depth.surgery import apply_plan
from exporter.models.registry import adapt
from tests.calibration.samples import (
    CLASSES,
    VARIANTS,
    frozen_images,
    relevance,
    tiny_vit,
)
from tests.calibration.whole_attention import gradients_of_attention
from tests.versions import runs_in_double
from tests.vits import cut_vit, make_tower, make_vit, random_images

POOLED = pytest.mark.parametrize("family", ["pooled", "eva02, pooled"])


def double(family: str) -> PrunableViT:
    return in_dtype(make_vit(family), torch.float64)


@POOLED
def test_relevance_of_one_is_spread_over_the_patches_alone(family: str) -> None:
    vit = double(family)
    images = random_images(vit, 2)
    seen = trace(vit, images)
    cam, prefix = cam_of_outputs(vit, seen, CLASSES), vit.spec.num_prefix_tokens
    assert (cam[:, :, :prefix] == 0).all() and (cam >= 0).all()
    torch.testing.assert_close(cam.sum((-2, -1)), torch.ones(2, 3, dtype=torch.float64))
    share = share_of_outputs(vit, cam[..., 0])
    assert (share[..., :prefix] == 0).all() and torch.allclose(
        share.sum(-1), torch.ones(1).double()
    )
    # The identity's own part, the same for every patch, is not in it: patches differ.
    found = relevance(vit, images, CLASSES)
    assert (found.std(-1) / found.mean(-1)).min() > 0.05


LENGTH = torch.zeros(2, 1, dtype=torch.long)


def embedding_of(kind: str) -> PrunableViT:
    """Return a model, in float64, whose embedding is a projection, a mean of patches, or the class token."""
    if kind == "projected":
        return in_dtype(make_tower(), torch.float64)
    model: Any = make_vit(kind).model
    model.reset_classifier(0)
    return in_dtype(adapt(model, name=kind), torch.float64)


EMBEDDINGS = pytest.mark.parametrize(
    "kind", ["projected", "vit", "pooled", "eva02, pooled"]
)


@EMBEDDINGS
def test_the_gradient_of_the_length_of_an_embedding_is_autograds(kind: str) -> None:
    vit = embedding_of(kind)
    seen = trace(vit, random_images(vit, 2))
    assert torch.equal(top_outputs(vit, seen, 6), LENGTH)
    tokens = seen.blocks[-1].output.clone().requires_grad_()
    (expected,) = torch.autograd.grad(
        vit.classify(vit.norm(tokens)).norm(dim=-1).sum(), tokens
    )
    torch.testing.assert_close(gradient_of_outputs(vit, seen, LENGTH)[:, 0], expected)


@EMBEDDINGS
def test_the_relevance_of_an_embedding_is_that_of_a_class_with_its_direction(
    kind: str,
) -> None:
    vit = embedding_of(kind)
    images = random_images(vit, 1)
    seen = trace(vit, images)
    cam = cam_of_outputs(vit, seen, LENGTH[:1])
    torch.testing.assert_close(cam.sum(), torch.ones((), dtype=torch.float64))
    share = share_of_outputs(vit, cam[..., 0])
    torch.testing.assert_close(share.sum(), torch.ones((), dtype=torch.float64))
    found = relevance(vit, images, LENGTH[:1])
    assert found.isfinite().all() and (found >= 0).all() and (found.amax(-1) > 0).all()
    model: Any = copy.deepcopy(vit.model)
    direction = seen.logits[0] / seen.logits[0].norm()
    weight = (
        direction
        if isinstance(model.head, nn.Identity)
        else direction @ model.head.weight
    )
    model.num_classes, model.head = 1, nn.Linear(len(weight), 1, dtype=torch.float64)
    model.head.weight.data.copy_(weight)
    model.head.bias.data.fill_(1.0)  # a classifier, not a projection
    classifier = adapt(model, name="one class")
    assert classifier.spec.num_classes == 1
    torch.testing.assert_close(relevance(classifier, images, LENGTH[:1]), found)


def test_what_can_be_explained() -> None:
    assert all(
        explainable(make_vit(family))
        for family in ("vit", "distilled", "pooled", "eva02, pooled")
    )
    assert not any(
        explainable(make_vit(family))
        for family in ("pooled, registers", "pooled by attention")
    )
    assert explainable(make_tower())


def with_an_identity() -> PrunableViT:
    """Layer 2's attention is the identity, layer 3 has one linear layer in place of an MLP."""
    return apply_plan(
        make_vit(depth=5), DepthPlan((2,), (3,), AttentionVariant.IDENTITY)
    )


SMALLER = {"cut": cut_vit, "with an identity": with_an_identity}


@pytest.mark.parametrize("variant", [*VARIANTS, *SMALLER])
def test_the_gradient_of_attention_is_autograds(
    variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the model's own forward, of attention after softmax."""
    runs_in_double(variant)
    monkeypatch.setattr("timm.layers.attention.use_fused_attn", lambda *_: False)
    monkeypatch.setattr("timm.models.eva.use_fused_attn", lambda *_: False)
    vit = in_dtype(
        SMALLER[variant]() if variant in SMALLER else tiny_vit(variant), torch.float64
    )
    images = frozen_images(2, vit.spec.preprocessing.input_size[1:])
    attentions = list[Tensor]()
    for name, module in vit.model.named_modules():
        if name.endswith("attn_drop"):
            module.register_forward_hook(lambda *call: attentions.append(call[-1]))
    vit.model.requires_grad_(True)
    logits = vit.model(images)
    vit.model.requires_grad_(False)
    seen, classes = trace(vit, images), torch.tensor([[1, 4], [1, 4]])
    found = gradients_of_attention(vit, seen, gradient_of_outputs(vit, seen, classes))
    for place, chosen in enumerate((1, 4)):
        expected = torch.autograd.grad(
            logits[:, chosen].sum(), attentions, retain_graph=True
        )
        for ours, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(ours[:, place], theirs, rtol=1e-9, atol=1e-12)
