"""Prefix tokens ranked with the patches: fewer nodes, and the same survivors in every family that allows it."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from exporter.lowering.passes.rank_prefix import LARGEST
from exporter.lowering.passes.shorten_scores import LARGEST_WEIGHT
from exporter.lowering.twins import tracing_twin
from exporter.pruning.pruned_vit import PrunedViT
from exporter.pruning.scores import SCORE_FLOOR
from exporter.targets import ONNXRUNTIME, OPENVINO, Target
from exporter.tensor_names import keep_name, ranked_name
from tests.lowering.models import FAMILIES, RATES, lowered, run, star
from tests.vits import random_images

APART = replace(ONNXRUNTIME, passes=tuple(name for name in ONNXRUNTIME.passes if name != "rank_prefix"))


def results_of(pruned: PrunedViT) -> set[str]:
    return {name for node in lowered(pruned).graph.node for name in node.output}


@pytest.mark.parametrize("family", FAMILIES)
def test_tokens_are_ranked_where_positions_have_no_other_reader(family: str) -> None:
    """Rotary embeddings are looked up by position, for keys and queries."""
    name = keep_name if "rotary" in family or family == "dinov3" else ranked_name
    assert {name(layer) for layer in RATES} <= results_of(star(family))


@pytest.mark.parametrize("scorer", ["intra", "inter"])
def test_other_scores_choose_among_patches(scorer: str) -> None:
    assert {keep_name(layer) for layer in RATES} <= results_of(star(scorer=scorer))


def test_four_nodes_a_layer_are_saved() -> None:
    counts = [
        Counter(node.op_type for node in lowered(star(), each).graph.node) for each in (APART, ONNXRUNTIME)
    ]
    counts[0].subtract(counts[1])
    layers = len(RATES)
    saved = {name: count for name, count in counts[0].items() if count}
    # The cut, the shift, the join and, with them, the TopK that sorts; once the prefix for all images.
    assert saved == {
        "Slice": layers,
        "Add": layers,
        "Concat": layers + 1,
        "TopK": layers,
        "Shape": 1,
        "Expand": 1,
    }


def test_no_patch_outranks_a_prefix_token_that_hears_nothing_of_itself() -> None:
    """Its own attention is then the floor; that of a patch is at most 1."""
    assert np.float32(SCORE_FLOOR) * LARGEST > LARGEST_WEIGHT
    assert np.log(np.float32(SCORE_FLOOR)) + LARGEST > 0


@pytest.mark.ort
@pytest.mark.parametrize("target", [ONNXRUNTIME, OPENVINO], ids=lambda target: target.name)
def test_survivors_are_shown_ascending_whatever_their_order(target: Target) -> None:
    pruned, images = star(), random_images(star().vit, 3)
    with torch.inference_mode():
        kept = pruned.trace(images).kept
    shown = run(tracing_twin(lowered(pruned, target)), images.numpy())
    for layer, each in kept.items():
        np.testing.assert_array_equal(shown[keep_name(layer + 1)], each.index.numpy())
