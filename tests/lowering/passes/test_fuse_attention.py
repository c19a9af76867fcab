"""Fused attention: one node a block where the heads allow it, and the same numbers."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from exporter.targets import ONNXRUNTIME
from tests.lowering.models import RATES, lowered, run, star
from tests.vits import random_images

PRIMITIVE = replace(ONNXRUNTIME, passes=("name_decisions", "expand_attention", "expand_selection"))


def test_every_block_has_one_attention_node_and_moves_no_heads() -> None:
    fused = Counter(node.op_type for node in lowered(star()).graph.node)
    plain = Counter(node.op_type for node in lowered(star(), PRIMITIVE).graph.node)
    depth, pruning = star().vit.spec.depth, len(RATES)
    assert fused["Attention"] == depth
    assert fused["Split"] == 0
    assert fused["Softmax"] == pruning  # the class rows; attention's own are inside the nodes
    assert plain["Transpose"] - fused["Transpose"] == 3 * depth
    assert plain["Attention"] == 0


def test_norms_on_query_and_key_keep_their_heads() -> None:
    operators = Counter(node.op_type for node in lowered(star("qk norm")).graph.node)
    assert operators["Attention"] == 0
    assert operators["Softmax"] == 4 + len(RATES)


@pytest.mark.ort
@pytest.mark.parametrize("family", ["vit", "distilled", "registers", "qk norm"])
def test_fused_and_primitive_attention_agree(family: str) -> None:
    images = random_images(star(family).vit, 3).numpy()
    logits = [run(lowered(star(family), target), images)["logits"] for target in (ONNXRUNTIME, PRIMITIVE)]
    np.testing.assert_allclose(logits[0], logits[1], atol=1e-4 * logits[1].std() + 1e-6)
