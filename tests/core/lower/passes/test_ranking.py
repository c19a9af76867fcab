"""The passes of the scores that patches are ranked by, and of the ranking."""

from dataclasses import replace

import numpy as np
import onnx_graphsurgeon as gs
import pytest
import torch
from torch import nn

from exporter.core.base.targets import ONNXRUNTIME
from exporter.core.base.tensor_names import keep_name, ranked_name
from exporter.core.lower.instrumented import tracing_model
from exporter.core.lower.passes.ranking import (
    LARGEST,
    LARGEST_WEIGHT,
    choose_unsorted,
    expand_factors,
    rank_prefix,
    shorten_scores,
)
from exporter.core.lower.pipeline import lower
from exporter.core.prune.ops.factors import dissimilarity, received
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.prune.scores import SCORE_FLOOR
from exporter.core.verify.reference import check
from tests.core.lower.graphs import applied, artefact, graph_of, noise, operators, run
from tests.core.lower.models import (
    FAMILIES,
    biased_vit,
    lowered,
    operators_in,
    operators_of,
    pruned_of,
    results_in,
    star,
)
from tests.core.lower.models import run as run_model
from tests.core.prune.adaptive import RATES
from tests.vits import make_vit, random_images

SCALE = 0.7
BIAS = np.array([[0, 0, 0, 0, 0], [0.7, 0, 0.7, -np.inf, -np.inf]], dtype=np.float32)


def receiving(stride: int, *, biased: bool) -> gs.Graph:
    heads = "float[b, 3, 5, 4]"
    takes, reads = (", float[b, 5] z", ", z") if biased else ("", "")
    return graph_of(
        f"({heads} q, {heads} k{takes}) => (float[b, 5] factor_01) "
        f"{{ factor_01 = star.Received <scale = {SCALE}, stride = {stride}> (q, k{reads}) }}"
    )


@pytest.mark.ort
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("bias", [None, BIAS])
def test_received(stride: int, bias: np.ndarray | None) -> None:
    graph = receiving(stride, biased=bias is not None)
    assert applied(expand_factors, graph) == 1
    # One product: the walk from a decision back to it keeps all else in fp32.
    assert operators(graph)["MatMul"] == 1
    assert operators(graph)["Slice"] == (0 if stride == 1 else 1 + (bias is not None))
    query, key = noise(2, 3, 5, 4), noise(2, 3, 5, 4)
    feed = {"q": query, "k": key, **({} if bias is None else {"z": bias})}
    got = run(graph, **feed)["factor_01"]
    given = None if bias is None else torch.from_numpy(bias)
    expected = received(
        torch.from_numpy(query), torch.from_numpy(key), given, SCALE, stride
    )
    np.testing.assert_allclose(got, expected.numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.ort
@pytest.mark.parametrize(
    "packed", [False, True], ids=["by head", "as a projection gives it"]
)
@pytest.mark.parametrize(
    "live", [None, np.array([[True] * 5, [True] * 3 + [False] * 2])]
)
def test_dissimilarity(live: np.ndarray | None, *, packed: bool) -> None:
    key = noise(2, 3, 5, 4)
    shape = "float[b, 5, 12]" if packed else "float[b, 3, 5, 4]"
    takes, reads = (", bool[b, 5] m", ", m") if live is not None else ("", "")
    graph = graph_of(
        f"({shape} k{takes}) => (float[b, 4] factor_01) "
        f"{{ factor_01 = star.Dissimilarity <num_prefix_tokens = 1> (k{reads}) }}"
    )
    assert applied(expand_factors, graph) == 1
    assert operators(graph)["MatMul"] == 0
    given = key.transpose(0, 2, 1, 3).reshape(2, 5, 12) if packed else key
    got = run(graph, k=given, **({} if live is None else {"m": live}))["factor_01"]
    expected = dissimilarity(
        torch.from_numpy(key), None if live is None else torch.from_numpy(live), 1
    )
    np.testing.assert_allclose(got, expected.numpy(), rtol=1e-4, atol=1e-5)


PATCHES, KEPT = 12, 6
ALPHA = np.array(0.3, np.float32)

# The inter-layer scores of patches that all stand in their places, and those looked up by position.
IN_PLACE = "inter = Expand(table, shape)", {"shape": np.array([3, PATCHES])}
BY_POSITION = (
    "index = Unsqueeze(positions, last) inter = GatherND(table, index)",
    {"last": np.array([-1])},
)


def scored(
    table: np.ndarray,
    form: tuple[str, dict[str, np.ndarray]],
    alpha: np.ndarray = ALPHA,
) -> gs.Graph:
    """A score in the exporter's words; the marker behind it stands for what chooses."""
    lookup, constants = form
    positions = ", int64[b, 12] positions" if "positions" in lookup else ""
    return graph_of(
        f"(float[b, {PATCHES}] intra{positions}) => (int64[b, {KEPT}] keep) {{"
        f" log = Log(intra) weighed = Mul(log, alpha) {lookup} score = Add(weighed, inter)"
        f" keep = star.KeepTopK <k = {KEPT}> (score) }}",
        {"table": table, "alpha": alpha, **constants},
    )


def order_of(graph: gs.Graph, feed: dict[str, np.ndarray]) -> np.ndarray:
    """The order of the patches by the tensor that the marker reads."""
    graph = graph.copy()
    score = graph.nodes[-1].inputs[0]
    score.shape = ["b", PATCHES]
    graph.outputs = [score]
    return np.argsort(-run(graph.cleanup(), **feed)[score.name], axis=1, kind="stable")


@pytest.mark.ort
@pytest.mark.parametrize(
    ("form", "left"),
    [(IN_PLACE, {"Mul": 1}), (BY_POSITION, {"Gather": 1, "Mul": 1})],
    ids=["in place", "by position"],
)
@pytest.mark.parametrize("span", [3.0, 60.0], ids=["a product", "a sum of logarithms"])
def test_the_order_stays(
    form: tuple[str, dict[str, np.ndarray]], left: dict[str, int], span: float
) -> None:
    table = np.linspace(-span, 0, PATCHES, dtype=np.float32)
    one, other = scored(table, form), scored(table, form)
    assert applied(shorten_scores, other) == 1
    counted = operators(other)
    del counted["KeepTopK"]
    if span > 10:
        left = {**{name: 1 for name in left if name != "Mul"}, "Log": 1, "Add": 1}
    assert counted == left
    positions = np.stack(
        [np.random.default_rng(image).permutation(PATCHES) for image in range(3)]
    )
    feed = {
        "intra": np.exp(noise(3, PATCHES)),
        **({"positions": positions} if form is BY_POSITION else {}),
    }
    np.testing.assert_array_equal(order_of(other, feed), order_of(one, feed))


@pytest.mark.parametrize(
    ("table", "alpha"),
    [(noise(PATCHES), np.array(0.0, np.float32)), (noise(1, PATCHES), ALPHA)],
    ids=["no weight", "a table of rows"],
)
def test_other_scores_are_left_alone(table: np.ndarray, alpha: np.ndarray) -> None:
    assert applied(shorten_scores, scored(table, IN_PLACE, alpha)) == 0


def test_a_score_that_is_no_sum_is_left_alone() -> None:
    graph = graph_of(
        "(float[b, 12] s) => (int64[b, 6] keep) { keep = star.KeepTopK <k = 6> (s) }"
    )
    assert applied(shorten_scores, graph) == 0


def test_scores_are_products_without_a_further_axis() -> None:
    short = operators_of("rank_prefix")
    long = operators_of("shorten_scores", "rank_prefix")
    assert (short["Log"], long["Log"]) == (0, len(RATES))
    assert short["Expand"] < long["Expand"]
    assert short["Unsqueeze"] < long["Unsqueeze"]
    assert short["GatherND"] < long["GatherND"]
    assert short.total() < long.total()


def test_scores_that_a_product_would_lose_stay_logarithms() -> None:
    far = np.geomspace(1e-30, 1.0, star().vit.spec.num_patches)
    inter = np.tile(far, (star().vit.spec.depth, 1))
    pruned = PrunedViT(star().vit, replace(star().schedule, alpha=0.15), inter).eval()
    assert operators_of(pruned=pruned)["Log"] == len(RATES)
    images = random_images(pruned.vit, 16).numpy()
    assert check(pruned, lowered(pruned), images).passed


APART = replace(
    ONNXRUNTIME,
    passes=tuple(name for name in ONNXRUNTIME.passes if name != "rank_prefix"),
)


def results_of(pruned: PrunedViT) -> set[str]:
    return set(results_in(lowered(pruned)))


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
    names = results_in(lower(pruned, ONNXRUNTIME)).keys()
    assert {ranked_name(layer) for layer in RATES} <= names


def test_each_layer_is_spared_a_cut_a_shift_a_join_and_a_sort() -> None:
    saved, left = (operators_in(lowered(star(), each)) for each in (APART, ONNXRUNTIME))
    saved.subtract(left)
    for operator in ("Slice", "Add", "Concat", "TopK"):
        assert saved[operator] >= len(RATES), operator
    assert min(saved.values()) >= 0  # and nothing takes their place


def test_no_patch_outranks_a_prefix_token_that_hears_nothing_of_itself() -> None:
    """Its own attention is then the floor; that of a patch is at most 1."""
    assert np.float32(SCORE_FLOOR) * LARGEST > LARGEST_WEIGHT
    assert np.log(np.float32(SCORE_FLOOR)) + LARGEST > 0


@pytest.mark.ort
def test_a_tie_at_the_cut_is_a_flip_of_no_margin() -> None:
    """A class token that looks at nothing scores all patches alike; importance then has three values."""
    vit = biased_vit()
    for name, parameter in vit.model.named_parameters():
        if "attn.qkv" in name:
            nn.init.zeros_(parameter[: vit.spec.dim])  # the queries
    inter = (
        np.random.default_rng(0)
        .integers(1, 4, (vit.spec.depth, vit.spec.num_patches))
        .astype(float)
    )
    pruned = PrunedViT(vit, star().schedule, inter).eval()
    images = random_images(vit, 16)
    shown = run_model(tracing_model(lowered(pruned)), images.numpy())
    with torch.inference_mode():
        first, *_ = pruned.trace(images).decisions.values()
    np.testing.assert_array_equal(shown[keep_name(1)], first.index.numpy())
    report = check(pruned, lowered(pruned), images.numpy())
    assert sum(layer.flipped_images for layer in report.layers) > 0
    assert {layer.largest_flip_margin for layer in report.layers} <= {0.0, None}


def test_patches_that_something_else_reads_are_ranked_alone() -> None:
    """One layer that chooses 8 of 16 patches by what a class row says of 17 tokens."""
    graph = graph_of(
        "(float[b, 17] mean, float[b, 17, 3] x) => (float[b, 9, 3] taken, int64[b, 8] other) {"
        " cut = Slice(mean, one, end, one) clipped = Clip(cut, floor) score = Mul(clipped, table)"
        " keep_01 = star.KeepTopK <k = 8> (score) other = Identity(keep_01)"
        " taken = star.TakeTokens <num_prefix_tokens = 1> (x, keep_01) }",
        {
            "one": np.array([1]),
            "end": np.array([17]),
            "floor": np.array(SCORE_FLOOR, np.float32),
            "table": np.abs(noise(16)),
        },
    )
    assert applied(rank_prefix, graph, artefact(1)) == 0


def test_scores_that_are_read_are_sorted() -> None:
    graph = graph_of(
        "(float[b, 8] score) => (int64[b, 3] kept, float[b, 3] scores) {"
        " best, order = TopK <axis = 1, largest = 1, sorted = 1> (score, k) scores = Identity(best)"
        " kept, rank = TopK <axis = 1, largest = 0, sorted = 1> (order, k) }",
        {"k": np.array([3])},
    )
    assert applied(choose_unsorted, graph, artefact(1)) == 0


def test_one_top_k_is_enough_behind_one_prefix_token() -> None:
    assert operators_of()["TopK"] == len(RATES)
    nodes = [
        node for node in lowered(star("registers")).graph.node if node.op_type == "TopK"
    ]
    attributes = [{a.name: a.i for a in node.attribute} for node in nodes]
    assert [attribute["sorted"] for attribute in attributes] == [0, 1] * len(RATES)
    assert [attribute["largest"] for attribute in attributes] == [1, 0] * len(RATES)
