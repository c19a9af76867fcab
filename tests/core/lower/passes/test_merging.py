"""The passes of merging, by survivors and in pairs."""

import numpy as np
import onnx_graphsurgeon as gs
import pytest

from exporter.core.lower.pass_table import Rewrite
from exporter.core.lower.passes.counting import count_pairs
from exporter.core.lower.passes.merging import expand_merging
from exporter.core.lower.passes.pairing import expand_pairing
from exporter.core.lower.passes.selection import expand_selection
from exporter.core.schedule.counts import joined_patches
from tests.core.lower.graphs import applied, artefact, graph_of, operators, run
from tests.core.prune.ops.references import (
    Pairs,
    reference_into,
    reference_mean,
    reference_pairs,
)

PATCHES, KEPT, DIM = 9, 4, 6
HEADS, WIDTH = artefact().spec.num_heads, 4


def keys_of(tokens: int, *, packed: bool) -> str:
    """The type of keys by head, or as the projection gives them."""
    return (
        f"float[b, {tokens}, {HEADS * WIDTH}]"
        if packed
        else f"float[b, {HEADS}, {tokens}, {WIDTH}]"
    )


def fed(key: np.ndarray, *, packed: bool) -> np.ndarray:
    """Keys [b, h, t, c] of that type."""
    return key.transpose(0, 2, 1, 3).reshape(*key.shape[::2], -1) if packed else key


def merging(prefix: int, *, sized: bool, packed: bool = False) -> gs.Graph:
    """A graph of the two markers alone, expanded."""
    tokens, left = prefix + PATCHES, prefix + KEPT
    takes, reads = (f", float[b, {tokens}] sizes", ", sizes") if sized else ("", "")
    graph = graph_of(
        f"({keys_of(tokens, packed=packed)} key, float[b, {tokens}, {DIM}] tokens, int64[b, {KEPT}] keep{takes})"
        f" => (int64[b, {PATCHES}] into, float[b, {left}, {DIM}] merged, float[b, {left}] merged_sizes) {{"
        f" into, gap = star.MergeInto <num_prefix_tokens = {prefix}> (key, keep) merged, merged_sizes ="
        f" star.MergeTokens <num_prefix_tokens = {prefix}, kept = {KEPT}> (tokens, into{reads}) }}",
        opset=20,
    )
    assert applied(expand_merging, graph, artefact(1)) == 2
    assert applied(expand_selection, graph) == 1
    return graph


@pytest.mark.ort
@pytest.mark.parametrize("packed", [False, True], ids=["by head", "packed"])
@pytest.mark.parametrize("sized", [False, True])
@pytest.mark.parametrize("prefix", [0, 1, 3])
def test_the_numpy_reference_is_computed(
    prefix: int, sized: bool, packed: bool
) -> None:
    rng = np.random.default_rng(prefix)
    tokens = rng.standard_normal((3, prefix + PATCHES, DIM)).astype(np.float32)
    key = rng.standard_normal((3, HEADS, prefix + PATCHES, WIDTH)).astype(np.float32)
    key[1, :, -1] = 0.0  # a patch without a direction
    keep = np.stack([np.sort(rng.permutation(PATCHES)[:KEPT]) for _ in range(3)])
    sizes = rng.integers(1, 5, (3, prefix + PATCHES)).astype(np.float32)
    feed = {"key": fed(key, packed=packed), "tokens": tokens, "keep": keep}
    feed |= {"sizes": sizes} if sized else {}
    results = run(merging(prefix, sized=sized, packed=packed), **feed)
    for image in range(3):
        into, _ = reference_into(key[image], keep[image], prefix)
        own = sizes[image] if sized else None
        merged, merged_sizes = reference_mean(tokens[image], into, own, KEPT, prefix)
        np.testing.assert_array_equal(results["into"][image], into)
        np.testing.assert_allclose(results["merged"][image], merged, atol=1e-6)
        np.testing.assert_array_equal(results["merged_sizes"][image], merged_sizes)


@pytest.mark.ort
def test_twins_stay_themselves() -> None:
    tokens = np.ones((1, 1 + PATCHES, DIM), np.float32)
    key = np.ones((1, HEADS, 1 + PATCHES, WIDTH), np.float32)
    results = run(
        merging(1, sized=False), key=key, tokens=tokens, keep=np.array([[1, 3, 5, 7]])
    )
    assert results["into"].tolist() == [[0, 0, 0, 1, 0, 2, 0, 3, 0]]
    np.testing.assert_allclose(results["merged"], tokens[:, : 1 + KEPT])


def pairing(
    patches: int, kept: int, prefix: int, packed: bool, expand: Rewrite = expand_pairing
) -> gs.Graph:
    """A graph of the marker alone, expanded."""
    graph = graph_of(
        f"({keys_of(prefix + patches, packed=packed)} key)"
        f" => (int64[b, {kept}] keep_01, int64[b, {patches}] into_01) {{ keep_01, into_01, score, gap ="
        f" star.PairTokens <kept = {kept}, num_prefix_tokens = {prefix}> (key) }}",
        opset=20,
    )
    assert applied(expand, graph, artefact(1)) == 1
    chooses = expand is expand_pairing and kept > len(
        joined_patches(patches, kept, prefix)
    )
    assert applied(expand_selection, graph) == chooses
    return graph


def assert_pairs(results: dict[str, np.ndarray], image: int, expected: Pairs) -> None:
    np.testing.assert_array_equal(results["keep_01"][image], expected.index)
    np.testing.assert_array_equal(results["into_01"][image], expected.into)


EACH = pytest.mark.parametrize(
    "expand", [expand_pairing, count_pairs], ids=lambda expand: expand.__name__
)


@EACH
@pytest.mark.ort
@pytest.mark.parametrize("packed", [False, True], ids=["by head", "packed"])
@pytest.mark.parametrize("patches", [8, 9])
@pytest.mark.parametrize("prefix", [0, 1, 2])
def test_the_numpy_reference_of_pairs_is_computed(
    prefix: int, patches: int, packed: bool, expand: Rewrite
) -> None:
    alternating = len(joined_patches(patches, patches, prefix))
    for kept in (1, 2, alternating - 1, alternating, alternating + 2, patches - 1):
        keys = np.random.default_rng(kept).standard_normal(
            (3, HEADS, prefix + patches, WIDTH)
        )
        keys = keys.astype(np.float32)
        graph = pairing(patches, kept, prefix, packed, expand)
        results = run(graph, key=fed(keys, packed=packed))
        for image in range(3):
            expected = reference_pairs(keys[image], kept, prefix)
            assert_pairs(results, image, expected)


@EACH
@pytest.mark.ort
def test_of_equal_cosines_the_lower_position_stays_and_is_joined(
    expand: Rewrite,
) -> None:
    directions = np.eye(WIDTH, dtype=np.float32)[
        np.random.default_rng(0).integers(0, 2, (8, 10))
    ]
    keys = np.repeat(directions[:, None], HEADS, axis=1)
    results = run(pairing(9, 7, 1, False, expand), key=keys)
    for image in range(8):
        expected = reference_pairs(keys[image], 7, 1)
        assert_pairs(results, image, expected)


@pytest.mark.ort
def test_the_sets_are_slices_and_one_product_compares_them() -> None:
    counts = operators(pairing(9, 7, 1, packed=False))
    assert (counts["MatMul"], counts["TopK"]) == (1, 3)
    assert counts["Div"] == 1  # the lengths of all keys
    assert operators(pairing(9, 5, 1, packed=False))["TopK"] == 1


@pytest.mark.ort
@pytest.mark.parametrize("sized", [False, True])
@pytest.mark.parametrize("prefix", [0, 1, 2])
def test_the_second_set_is_averaged_and_other_tokens_stay(
    prefix: int, sized: bool
) -> None:
    """Few patches stay, or as many as the second set has, or more."""
    rng, tokens = np.random.default_rng(prefix), prefix + PATCHES
    takes, reads = (f", float[b, {tokens}] sizes", ", sizes") if sized else ("", "")
    feed = {"tokens": rng.standard_normal((3, tokens, DIM)).astype(np.float32)}
    if sized:
        feed["sizes"] = rng.integers(1, 5, (3, tokens)).astype(np.float32)
        feed["sizes"][:, :prefix] = 1.0
    for kept in (1, 2, len(joined_patches(PATCHES, PATCHES, prefix)), PATCHES - 1):
        pairs = f"<kept = {kept}, num_prefix_tokens = {prefix}>"
        graph = graph_of(
            f"(float[b, {tokens}, {DIM}] tokens{takes}) => (int64[b, {kept}] keep_01, int64[b, {PATCHES}] into_01,"
            f" float[b, {prefix + kept}, {DIM}] tokens_01, float[b, {prefix + kept}] sizes_01) {{"
            " axis = Constant <value_ints = [1]> () key = Unsqueeze(tokens, axis)"
            f" keep_01, into_01, score, gap = star.PairTokens {pairs} (key{reads})"
            f" tokens_01, sizes_01 = star.MergeTokens {pairs} (tokens, into_01{reads}) }}",
            opset=20,
        )
        assert applied(expand_pairing, graph, artefact(1)) == 1
        applied(expand_selection, graph)
        results = run(graph, **feed)
        for image in range(3):
            own, sizes = feed["tokens"][image], feed["sizes"][image] if sized else None
            expected = reference_pairs(own[None], kept, prefix, sizes)
            merged, summed = reference_mean(own, expected.into, sizes, kept, prefix)
            assert_pairs(results, image, expected)
            np.testing.assert_allclose(results["tokens_01"][image], merged, atol=1e-6)
            np.testing.assert_array_equal(results["sizes_01"][image], summed)
