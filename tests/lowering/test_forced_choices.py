"""A graph whose survivors are given needs no operator that chooses, and gives what the standard form gives."""

import numpy as np
import pytest
import torch

from exporter.lowering.markers import PACK_SURVIVORS
from exporter.lowering.variants import forced_variant
from exporter.pruning.pruned_vit import PrunedViT
from exporter.runtimes.onnxruntime.runner import OnnxRuntimeRunner
from exporter.targets import ONNXRUNTIME, ONNXRUNTIME_OPS, Target
from exporter.tensor_names import count_name, keep_name
from tests.lowering.models import a_star, lowered, star
from tests.pruning.adaptive import varied_images
from tests.versions import counts_keys

MADE = {
    "star": star,
    "rotary": lambda: star("dinov3"),
    "shrinking": lambda: a_star(layout="shrinking"),
}


def decided(pruned: PrunedViT, images: torch.Tensor) -> dict[str, np.ndarray]:
    """What PyTorch decides, as the variant takes it."""
    with torch.inference_mode():
        decisions = pruned.trace(images).decisions
    keeps = {keep_name(layer): each.index.numpy() for layer, each in decisions.items()}
    counted = {layer: each.count for layer, each in decisions.items() if each.count is not None}
    return keeps | {count_name(layer): count.numpy() for layer, count in counted.items()}


def forced(pruned: PrunedViT, target: Target, feed: dict[str, np.ndarray]) -> np.ndarray:
    """The logits of the variant that takes decisions."""
    model = forced_variant(lowered(pruned, target))
    assert not {node.op_type for node in model.graph.node if node.domain} - {PACK_SURVIVORS}
    with OnnxRuntimeRunner(model.SerializeToString(), name=target.name) as runner:
        return runner.run(feed)["logits"]


def compare(pruned: PrunedViT) -> None:
    images = varied_images(pruned.vit, 4)
    feed = {"images": images.numpy(), **decided(pruned, images)}
    standard, ours = (forced(pruned, target, feed) for target in (ONNXRUNTIME, ONNXRUNTIME_OPS))
    np.testing.assert_allclose(ours, standard, atol=1e-5 * standard.std())


@pytest.mark.ort
@pytest.mark.parametrize("kind", MADE)
def test_given_survivors_are_taken(kind: str) -> None:
    if kind == "shrinking":
        counts_keys()
    compare(MADE[kind]())


@pytest.mark.ort
@pytest.mark.usefixtures("operators")
def test_given_survivors_are_packed_by_the_library() -> None:
    compare(a_star(layout="packed"))
