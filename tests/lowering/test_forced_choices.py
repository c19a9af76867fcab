"""A graph whose survivors are given needs no operator that chooses, and gives what the standard form gives."""

import numpy as np
import pytest
import torch

from exporter.lowering.variants import forced_variant
from exporter.pruning.pruned_vit import PrunedViT
from exporter.runtimes.onnxruntime.runner import OnnxRuntimeRunner
from exporter.targets import TENSORRT_FP16, TENSORRT_PLUGIN_FP16, Target
from exporter.tensor_names import keep_name
from tests.lowering.models import lowered, star
from tests.pruning.adaptive import varied_images


def forced(pruned: PrunedViT, target: Target, feed: dict[str, np.ndarray]) -> np.ndarray:
    """The logits of the variant that takes decisions."""
    model = forced_variant(lowered(pruned, target))
    assert not {node.op_type for node in model.graph.node if node.domain}
    with OnnxRuntimeRunner(model.SerializeToString(), name=target.name) as runner:
        return runner.run(feed)["logits"]


@pytest.mark.ort
@pytest.mark.parametrize("family", ["vit", "dinov3"])
def test_given_survivors_are_taken(family: str) -> None:
    pruned = star(family)
    images = varied_images(pruned.vit, 4)
    with torch.inference_mode():
        decisions = pruned.trace(images).decisions
    keeps = {keep_name(layer): each.index.numpy() for layer, each in decisions.items()}
    feed = {"images": images.numpy(), **keeps}
    standard, plugin = (forced(pruned, target, feed) for target in (TENSORRT_FP16, TENSORRT_PLUGIN_FP16))
    np.testing.assert_array_equal(plugin, standard)
