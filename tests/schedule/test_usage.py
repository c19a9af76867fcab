"""Patches that a-STAR leaves, counted on images, and the MACs that follow."""

import numpy as np
import pytest
import torch

from exporter.evaluation.parity.reference import reference_runner
from exporter.evaluation.survivors import patches_left
from exporter.models.base import PrunableViT
from exporter.pruning.pruned_vit import PrunedViT
from exporter.schedule.macs import dense_macs, executed_macs, mean_macs, pruned_macs
from exporter.schedule.usage import patch_use
from tests.pruning.adaptive import LAYOUTS, kept_by, make_adaptive, varied_images


def counted(pruned: PrunedViT, images: torch.Tensor) -> np.ndarray:
    with torch.inference_mode():
        return pruned.patches_left(images).numpy()


def test_counts_are_those_of_the_trace(tiny_vit: PrunableViT) -> None:
    pruned, images = make_adaptive(tiny_vit), varied_images(tiny_vit, 5)
    left = counted(pruned, images)
    with torch.inference_mode():
        trace = pruned.trace(images)
    for image in range(5):
        first, second, last = map(len, kept_by(trace, image))
        assert left[image].tolist() == [first, second, second, last]
    with reference_runner(pruned) as runner:
        tensors = runner.run({"images": images.numpy()})
    spec = tiny_vit.spec
    np.testing.assert_array_equal(patches_left(tensors, spec.depth, spec.num_patches), left)


def test_use_over_images(tiny_vit: PrunableViT) -> None:
    pruned, images = make_adaptive(tiny_vit), varied_images(tiny_vit, 6)
    left = counted(pruned, images)
    use = patch_use(tiny_vit.spec, pruned.schedule, left, "shrinking", batch=2)
    assert [layer.layer for layer in use.layers] == [1, 2, 4]
    last = use.layers[-1]
    assert (last.least, last.most) == (left[:, -1].min(), left[:, -1].max())
    assert last.median == np.median(left[:, -1])
    assert last.most <= last.star == pruned.schedule.keep[-1]
    expected = np.mean([pruned_macs(tiny_vit.spec, counts).total for counts in left.tolist()])
    assert use.useful_macs == pytest.approx(expected, abs=1)
    assert use.most_macs == max(
        pruned_macs(tiny_vit.spec, counts, scored=pruned.schedule).total for counts in left.tolist()
    )
    assert mean_macs(tiny_vit.spec, left).total == use.useful_macs


@pytest.mark.parametrize("layout", LAYOUTS)
def test_executed_macs_count_padding(tiny_vit: PrunableViT, layout: str) -> None:
    spec = tiny_vit.spec
    left = np.array([[12, 12, 8, 8], [10, 10, 3, 3]])
    most = (13, 13, 9, 9)
    useful = np.mean([pruned_macs(spec, counts).total for counts in left.tolist()])
    executed = executed_macs(spec, left, layout, most)
    expected = {
        "shrinking": pruned_macs(spec, (12, 12, 8, 8)).total,
        "padded": pruned_macs(spec, most).total,
    }
    assert useful < executed < dense_macs(spec).total
    if layout in expected:
        assert executed == expected[layout]
    else:
        assert executed < expected["shrinking"]


def test_alone_nothing_is_padded(tiny_vit: PrunableViT) -> None:
    pruned = make_adaptive(tiny_vit)
    left = counted(pruned, varied_images(tiny_vit, 4))
    for layout in ("shrinking", "packed"):
        use = patch_use(tiny_vit.spec, pruned.schedule, left, layout, batch=1)
        assert use.executed_macs == pytest.approx(use.useful_macs, abs=1)
