"""a-STAR in PyTorch: the kept patches of an image do not depend on its batch or on the layout in memory."""

import numpy as np
import pytest
import torch

from exporter.core.prune.ops.cdf_reference import cdf_retain
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.schedule.plan import manual_schedule
from exporter.core.schedule.policy import resolve
from exporter.core.schedule.prune import Prune
from exporter.core.vit.protocol import PrunableViT
from tests.core.prune.adaptive import LAYOUTS, RATES, kept_by, make_adaptive
from tests.vits import FAMILIES, make_vit, random_images, varied_images


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_image_is_classified_as_it_is_alone(family: str, layout: str) -> None:
    vit = make_vit(family)
    pruned, images = make_adaptive(vit, layout), varied_images(vit, 4)
    with torch.inference_mode():
        together = pruned.trace(images)
        for image in range(len(images)):
            alone = pruned.trace(images[image : image + 1])
            assert kept_by(together, image) == kept_by(alone, 0)
            torch.testing.assert_close(
                together.logits[image], alone.logits[0], rtol=1e-5, atol=1e-5
            )


def test_keeps_what_the_reference_keeps(tiny_vit: PrunableViT) -> None:
    pruned, images = make_adaptive(tiny_vit), varied_images(tiny_vit, 5)
    with torch.inference_mode():
        trace = pruned.trace(images)
    valid = np.full(5, tiny_vit.spec.num_patches)
    for layer, kept in trace.decisions.items():
        expected = cdf_retain(
            trace.score[layer].exp().numpy(), valid, pruned.schedule.rates[layer - 1]
        )
        np.testing.assert_array_equal(kept.index.numpy(), expected.keep_index)
        assert kept.count is not None
        np.testing.assert_array_equal(kept.count.numpy(), expected.keep_count)
        valid = expected.keep_count


def test_star_lies_in_a_grid_whatever_the_layout(tiny_vit: PrunableViT) -> None:
    schedule = manual_schedule(
        tiny_vit.spec, RATES, resolve(Prune("intra", reduce="drop"))
    )
    images = random_images(tiny_vit, 2)
    with torch.inference_mode():
        one, other = (
            PrunedViT(tiny_vit, schedule, layout=layout)(images)
            for layout in ("shrinking", "packed")
        )
    assert torch.equal(one, other)
