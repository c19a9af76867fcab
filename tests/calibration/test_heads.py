"""Where relevance starts: at class tokens, or at the mean of the patches."""

import pytest
import torch

from exporter.calibration.heads import cam_of_logits, explainable, gradient_of_logits, share_of_logits
from exporter.calibration.relevance import relevance
from exporter.calibration.trace import in_dtype, trace
from exporter.models.base import PrunableViT
from tests.vits import make_tower, make_vit, random_images

CLASSES = torch.tensor([[0, 2, 5], [6, 1, 0]])
POOLED = pytest.mark.parametrize("family", ["pooled", "eva02, pooled"])


def double(family: str) -> PrunableViT:
    return in_dtype(make_vit(family), torch.float64)


@POOLED
def test_the_gradient_is_autograds(family: str) -> None:
    vit = double(family)
    seen = trace(vit, random_images(vit, 2))
    tokens = seen.blocks[-1].output.clone().requires_grad_()
    logits = vit.classify(vit.norm(tokens))
    torch.testing.assert_close(logits, seen.logits)
    got = gradient_of_logits(vit, seen, CLASSES)
    for place in range(3):
        chosen = logits.gather(1, CLASSES[:, place, None]).sum()
        (expected,) = torch.autograd.grad(chosen, tokens, retain_graph=True)
        torch.testing.assert_close(got[:, place], expected)


@POOLED
def test_relevance_of_one_is_spread_over_the_patches_alone(family: str) -> None:
    vit = double(family)
    seen = trace(vit, random_images(vit, 2))
    cam, prefix = cam_of_logits(vit, seen, CLASSES), vit.spec.num_prefix_tokens
    assert (cam[:, :, :prefix] == 0).all() and (cam >= 0).all()
    torch.testing.assert_close(cam.sum((-2, -1)), torch.ones(2, 3, dtype=torch.float64))
    share = share_of_logits(vit, cam[..., 0])
    assert (share[..., :prefix] == 0).all() and torch.allclose(share.sum(-1), torch.ones(1).double())


@POOLED
def test_every_layer_has_relevance_and_an_image_alone_the_same(family: str) -> None:
    vit = double(family)
    images = random_images(vit, 2)
    together = relevance(vit, images, CLASSES)
    assert together.isfinite().all() and (together >= 0).all() and (together.amax(-1) > 0).all()
    # The identity's own part, the same for every patch, is not in it: patches differ.
    assert (together.std(-1) / together.mean(-1)).min() > 0.05
    alone = relevance(vit, images[1:], CLASSES[1:])
    torch.testing.assert_close(together[1:], alone, rtol=1e-6, atol=1e-12)


def test_what_can_be_explained() -> None:
    assert all(explainable(make_vit(family)) for family in ("vit", "distilled", "pooled", "eva02, pooled"))
    assert not any(explainable(make_vit(family)) for family in ("pooled, registers", "pooled by attention"))
    assert not explainable(make_tower())
