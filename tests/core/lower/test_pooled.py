"""Models whose head reads no class token: what their patches are scored by, and the head, on the real runtimes."""

from collections import Counter

import pytest

from exporter.core.base.targets import (
    ONNXRUNTIME,
    ONNXRUNTIME_FP16,
    OPENVINO,
    TENSORRT,
    Target,
)
from exporter.core.base.vocabulary import Method
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.schedule.plan import manual_schedule
from exporter.core.schedule.policy import resolve
from exporter.core.schedule.prune import Prune
from tests.core.lower.models import (
    a_star,
    assert_agrees,
    lowered,
    merging,
    pruned_of,
    results_in,
    star,
)
from tests.core.prune.adaptive import RATES
from tests.exhaustive import also
from tests.vits import make_vit, varied_images

pytestmark = pytest.mark.ort

FURTHER = ("received, packed", "received, shrinking")
CASES = {
    "received": (star("pooled", "received"), (ONNXRUNTIME, OPENVINO, TENSORRT)),
    "received, fused with a table, a-STAR": (
        a_star("eva02, pooled", "packed"),
        (ONNXRUNTIME,),
    ),
    "received, packed": (a_star("pooled", "packed"), (ONNXRUNTIME,)),
    "received, shrinking": (a_star("pooled", "shrinking"), (ONNXRUNTIME,)),
    "received, padding": (a_star("pooled", "padded"), (ONNXRUNTIME, OPENVINO)),
    "probe": (
        star("pe, pooled by attention", "probe"),
        (ONNXRUNTIME, ONNXRUNTIME_FP16),
    ),
    "similarity": (star("pooled, registers", "similarity"), (ONNXRUNTIME,)),
    "merging, pooled by attention": (
        merging("pooled by attention", "merge-weighted"),
        (ONNXRUNTIME,),
    ),
}


@pytest.mark.parametrize(
    ("case", "target"),
    [
        (case, target)
        if target is targets[0] and case not in FURTHER
        else also(case, target)
        for case, (_, targets) in CASES.items()
        for target in targets
    ],
    ids=lambda each: each.name if isinstance(each, Target) else each,
)
def test_it_is_what_pytorch_computes(case: str, target: Target) -> None:
    assert assert_agrees(CASES[case][0], target, 8).layers


@pytest.mark.parametrize("layout", [also("packed"), "shrinking"])
def test_one_patch_may_be_all_that_is_left(layout: str) -> None:
    """Without a prefix token the images are then one token wide."""
    vit = make_vit("pooled")
    settings = Prune("received", method=Method.A_STAR, reduce="drop")
    pruned = PrunedViT(
        vit, manual_schedule(vit.spec, {2: 0.001}, resolve(settings)), layout=layout
    ).eval()
    assert (pruned.patches_left(varied_images(vit, 4))[:, 1:] == 1).all()
    assert_agrees(pruned, count=4)


def test_fused_attention_stays_whole_beside_the_attention_received() -> None:
    pruned = star("pooled", "received")
    nodes = lowered(pruned).graph.node
    operators = Counter(node.op_type for node in nodes)
    assert operators["Attention"] == pruned.vit.spec.depth
    # Its heads are cut from the parts that the node reads: the packed projection of five axes is nowhere.
    turns = [
        attribute.ints
        for node in nodes
        for attribute in node.attribute
        if attribute.name == "perm"
    ]
    assert turns and all(len(axes) < 5 for axes in turns)
    assert operators["Softmax"] == len(RATES)
    assert {node.domain for node in lowered(pruned).graph.node} == {""}


def test_a_head_that_pools_by_attention_is_named() -> None:
    names = results_in(lowered(star("pe, pooled by attention", "probe"))).keys()
    assert {"pooling", "context_04"} <= names


def test_a_stride_counts_tokens_in_their_order() -> None:
    """Behind one prefix token survivors may be in any order, but not where every third is a query."""
    vit = make_vit("pooled, registers", reg_tokens=1, global_pool="avg")
    assert_agrees(pruned_of(vit, query_stride=3), count=8)
