"""Prefix tokens ranked with the patches: fewer nodes, and the same survivors in every family that allows it."""

from collections import Counter
from dataclasses import replace

import numpy as np
import onnx_graphsurgeon as gs
import pytest
import torch
from torch import nn

from exporter.evaluation.parity.check_model import check
from exporter.lowering.markers import KEEP_TOP_K
from exporter.lowering.passes.expand_selection import expand_selection
from exporter.lowering.passes.rank_prefix import LARGEST, rank_prefix
from exporter.lowering.passes.shorten_scores import LARGEST_WEIGHT
from exporter.lowering.pipeline import lower
from exporter.lowering.variants import tracing_variant
from exporter.pruning.pruned_vit import PrunedViT
from exporter.pruning.scores import SCORE_FLOOR
from exporter.targets import ONNXRUNTIME, OPENVINO, Target
from exporter.tensor_names import keep_name, ranked_name
from tests.lowering import graphs
from tests.lowering.graphs import applied, artefact, graph_of, noise
from tests.lowering.models import FAMILIES, RATES, biased_vit, lowered, pruned_of, run, star
from tests.vits import make_vit, random_images

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


def test_tables_of_many_patches_are_weights_too() -> None:
    """As many as an exporter leaves alone where it folds constants, when all layers lie in one tensor."""
    pruned = pruned_of(make_vit(img_size=(512, 264)))
    assert pruned.vit.spec.depth * pruned.vit.spec.num_patches > 8192
    names = {name for node in lower(pruned, ONNXRUNTIME).graph.node for name in node.output}
    assert {ranked_name(layer) for layer in RATES} <= names


def test_each_layer_is_spared_a_cut_a_shift_a_join_and_a_sort() -> None:
    saved, left = (
        Counter(node.op_type for node in lowered(star(), each).graph.node) for each in (APART, ONNXRUNTIME)
    )
    saved.subtract(left)
    for operator in ("Slice", "Add", "Concat", "TopK"):
        assert saved[operator] >= len(RATES), operator
    assert min(saved.values()) >= 0  # and nothing takes their place


def test_no_patch_outranks_a_prefix_token_that_hears_nothing_of_itself() -> None:
    """Its own attention is then the floor; that of a patch is at most 1."""
    assert np.float32(SCORE_FLOOR) * LARGEST > LARGEST_WEIGHT
    assert np.log(np.float32(SCORE_FLOOR)) + LARGEST > 0


@pytest.mark.ort
@pytest.mark.parametrize("target", [ONNXRUNTIME, OPENVINO], ids=lambda target: target.name)
def test_survivors_are_shown_ascending_whatever_their_order(target: Target) -> None:
    """Both files run on ONNX Runtime here: what differs is the graph."""
    pruned, images = star(), random_images(star().vit, 3)
    with torch.inference_mode():
        kept = pruned.trace(images).decisions
    graph = gs.import_onnx(tracing_variant(lowered(pruned, target)))
    layers = list(kept)
    graph.outputs += [graph.tensors()[ranked_name(layer)].to_variable(np.int64) for layer in layers]
    shown = run(gs.export_onnx(graph), images.numpy())
    for layer, each in zip(layers, kept.values(), strict=True):
        np.testing.assert_array_equal(shown[keep_name(layer)], each.index.numpy())
        tokens = shown[ranked_name(layer)]
        assert (tokens[:, 0] == 0).all()
        assert (np.diff(tokens, axis=1) > 0).all() == (target is OPENVINO)


@pytest.mark.ort
def test_a_tie_at_the_cut_is_a_flip_of_no_margin() -> None:
    """A class token that looks at nothing scores all patches alike; importance then has three values."""
    vit = biased_vit()
    for name, parameter in vit.model.named_parameters():
        if "attn.qkv" in name:
            nn.init.zeros_(parameter[: vit.spec.dim])  # the queries
    inter = np.random.default_rng(0).integers(1, 4, (vit.spec.depth, vit.spec.num_patches)).astype(float)
    pruned = PrunedViT(vit, star().schedule, inter).eval()
    images = random_images(vit, 16)
    shown = run(tracing_variant(lowered(pruned)), images.numpy())
    with torch.inference_mode():
        first, *_ = pruned.trace(images).decisions.values()
    np.testing.assert_array_equal(shown[keep_name(1)], first.index.numpy())
    report = check(pruned, lowered(pruned), images.numpy())
    assert sum(layer.flipped_images for layer in report.layers) > 0
    assert {layer.largest_flip_margin for layer in report.layers} <= {0.0, None}


def ranked(reader: str = "") -> gs.Graph:
    """One layer that chooses 8 of 16 patches by what a class row says of 17 tokens."""
    outputs = ", int64[b, 8] other" if reader else ""
    return graph_of(
        f"(float[b, 17] mean, float[b, 17, 3] x) => (float[b, 9, 3] taken{outputs}) {{"
        " cut = Slice(mean, one, end, one) clipped = Clip(cut, floor) score = Mul(clipped, table)"
        " keep_01 = star.KeepTopK <k = 8> (score)"
        f" taken = star.TakeTokens <num_prefix_tokens = 1> (x, keep_01) {reader} }}",
        {
            "one": np.array([1]),
            "end": np.array([17]),
            "floor": np.array(SCORE_FLOOR, np.float32),
            "table": np.abs(noise(16)),
        },
    )


@pytest.mark.ort
def test_the_prefix_comes_first_and_the_same_patches_behind_it() -> None:
    one, other, feed = ranked(), ranked(), {"mean": np.abs(noise(2, 17)), "x": noise(2, 17, 3)}
    other.tensors()["table"].values = one.tensors()["table"].values
    assert applied(rank_prefix, other, artefact(1)) == 1
    (node,) = (each for each in other.nodes if each.op == KEEP_TOP_K)
    assert (node.attrs["k"], node.outputs[0].name) == (9, ranked_name(1))
    for graph in (one, other):
        applied(expand_selection, graph, artefact(1))
    expected, got = (graphs.run(graph, **feed)["taken"] for graph in (one, other))
    np.testing.assert_array_equal(got, expected)


def test_patches_that_something_else_reads_are_ranked_alone() -> None:
    assert applied(rank_prefix, ranked("other = Identity(keep_01)"), artefact(1)) == 0
