"""Fused attention: one node a block where the heads allow it, and the same numbers."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from exporter.lowering.pipeline import lower
from exporter.models.base import PrunableViT
from exporter.pruning.pruned_vit import PrunedViT
from exporter.runners.onnxruntime_runner import OnnxRuntimeRunner
from exporter.schedule.plan import ScheduleSettings, manual_schedule
from exporter.targets import ONNXRUNTIME
from tests.vits import make_vit, random_images

PRIMITIVE = replace(ONNXRUNTIME, passes=("name_decisions", "expand_attention", "expand_selection"))


def pruned_of(vit: PrunableViT) -> PrunedViT:
    return PrunedViT(vit, manual_schedule(vit.spec, {1: 0.8, 3: 0.6}, ScheduleSettings("intra")))


def test_every_block_has_one_attention_node_and_moves_no_heads(tiny_vit: PrunableViT) -> None:
    fused = Counter(node.op_type for node in lower(pruned_of(tiny_vit), ONNXRUNTIME).graph.node)
    plain = Counter(node.op_type for node in lower(pruned_of(tiny_vit), PRIMITIVE).graph.node)
    depth, pruning = tiny_vit.spec.depth, 2
    assert fused["Attention"] == depth
    assert fused["Split"] == 0
    assert fused["Softmax"] == pruning  # the class rows; attention's own are inside the nodes
    assert plain["Transpose"] - fused["Transpose"] == 3 * depth
    assert plain["Attention"] == 0


def test_norms_on_query_and_key_keep_their_heads() -> None:
    operators = Counter(
        node.op_type for node in lower(pruned_of(make_vit("qk norm")), ONNXRUNTIME).graph.node
    )
    assert operators["Attention"] == 0
    assert operators["Softmax"] == 4 + 2


@pytest.mark.ort
@pytest.mark.parametrize("family", ["vit", "distilled", "registers", "qk norm"])
def test_fused_and_primitive_attention_agree(family: str) -> None:
    vit = make_vit(family)
    images = random_images(vit, 3).numpy()
    logits = []
    for target in (ONNXRUNTIME, PRIMITIVE):
        content = lower(pruned_of(vit), target).SerializeToString()
        with OnnxRuntimeRunner(content, name="lowered") as runner:
            logits.append(runner.run({"images": images})["logits"])
    np.testing.assert_allclose(logits[0], logits[1], atol=1e-4 * logits[1].std() + 1e-6)
