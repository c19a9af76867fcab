"""Survivors as tokens in any order are those as ascending patches, from layer to layer and back."""

from dataclasses import replace

import numpy as np
import onnx_graphsurgeon as gs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.artefact import Artefact
from exporter.lowering.ranked_tokens import patches_for_tokens, patches_from_tokens
from exporter.tensor_names import keep_name, ranked_name
from tests.lowering.graphs import artefact, graph_of, run

pytestmark = pytest.mark.ort

LAYERS, PATCHES = (1, 2, 4), 16


def pruning(prefix: int) -> Artefact:
    """Of a model with so many prefix tokens that prunes thrice."""
    of = artefact(*LAYERS)
    return replace(of, spec=replace(of.spec, num_prefix_tokens=prefix))


def kept(of: Artefact) -> list[int]:
    return [of.schedule.keep[layer - 1] for layer in LAYERS]


def choosing(of: Artefact) -> gs.Graph:
    """Each layer chooses what is fed to it; one node reads that, and gives it as it is."""
    prefix = of.spec.num_prefix_tokens
    nodes, inputs, outputs = [], [], []
    for layer, count in zip(LAYERS, kept(of), strict=True):
        fed, chosen, read = (
            gs.Variable(name, np.int64, ["batch", prefix + count])
            for name in (f"fed_{layer}", ranked_name(layer), f"read_{layer}")
        )
        for one, other in ((fed, chosen), (chosen, read)):
            nodes.append(gs.Node("Identity", f"{other.name}/node", {}, [one], [other]))
        inputs.append(fed)
        outputs.append(read)
    return gs.Graph(nodes, inputs, outputs, opset=23)


def shown(of: Artefact, tokens: list[np.ndarray]) -> list[np.ndarray]:
    """What `patches_from_tokens` makes of rows of tokens."""
    graph = choosing(of)
    patches_from_tokens(graph, of)
    graph.outputs += [graph.tensors()[keep_name(layer)] for layer in LAYERS]
    found = run(graph, **{f"fed_{layer}": rows for layer, rows in zip(LAYERS, tokens, strict=True)})
    for layer, rows in zip(LAYERS, tokens, strict=True):
        np.testing.assert_array_equal(found[f"read_{layer}"], rows)
    return [found[keep_name(layer)] for layer in LAYERS]


def read(of: Artefact, patches: list[np.ndarray]) -> list[np.ndarray]:
    """What readers get after `patches_for_tokens`, from patches."""
    graph = choosing(of)
    patches_for_tokens(graph, of)
    graph.inputs = [graph.tensors()[keep_name(layer)] for layer in LAYERS]
    graph.cleanup().toposort()
    found = run(graph, **{keep_name(layer): rows for layer, rows in zip(LAYERS, patches, strict=True)})
    return [found[f"read_{layer}"] for layer in LAYERS]


def drawn(of: Artefact, seed: int, images: int, *, ascending: bool = False) -> list[np.ndarray]:
    """Rows of the tokens that reach each layer: the prefix first, then as many patches as it keeps."""
    random, prefix, reaching, rows = np.random.default_rng(seed), of.spec.num_prefix_tokens, PATCHES, []
    for count in kept(of):
        patches = [random.permutation(reaching)[:count] for _ in range(images)]
        patches = [np.sort(each) for each in patches] if ascending else patches
        rows.append(np.array([[*range(prefix), *(each + prefix)] for each in patches]))
        reaching = count
    return rows


@settings(max_examples=20)
@given(prefix=st.integers(1, 3), seed=st.integers(0, 999), images=st.integers(1, 3))
def test_any_order_of_tokens_means_patches_that_ascend(prefix: int, seed: int, images: int) -> None:
    """By what stands where in the image: a layer's survivors, counted among those of the layer before."""
    of = pruning(prefix)
    tokens = drawn(of, seed, images)
    found = shown(of, tokens)
    for image in range(images):
        standing, reached = list(range(prefix + PATCHES)), list(range(PATCHES))
        for rows, patches in zip(tokens, found, strict=True):
            standing = [standing[row] for row in rows[image]]
            survivors = sorted(place - prefix for place in standing[prefix:])
            assert patches[image].tolist() == [reached.index(each) for each in survivors]
            reached = survivors


@settings(max_examples=20)
@given(prefix=st.integers(1, 3), seed=st.integers(0, 999))
def test_patches_are_read_as_the_tokens_they_are_and_shown_as_what_they_were(prefix: int, seed: int) -> None:
    of = pruning(prefix)
    tokens = drawn(of, seed, 2, ascending=True)
    patches = [rows[:, prefix:] - prefix for rows in tokens]
    for got, expected in zip(read(of, patches), tokens, strict=True):
        np.testing.assert_array_equal(got, expected)
    for got, expected in zip(shown(of, tokens), patches, strict=True):
        np.testing.assert_array_equal(got, expected)


def test_forced_patches_have_the_shape_of_what_a_layer_keeps() -> None:
    of = pruning(1)
    graph = choosing(of)
    patches_for_tokens(graph, of)
    for layer, count in zip(LAYERS, kept(of), strict=True):
        tensor = graph.tensors()[keep_name(layer)]
        assert (tensor.dtype, tensor.shape, tensor.inputs) == (np.int64, ["batch", count], [])


def test_a_graph_that_chooses_among_patches_is_left_as_it_is() -> None:
    text = "(float[b, 16] x) => (int64[b, 8] keep_01) { y = Relu(x) keep_01 = star.KeepTopK <k = 8> (y) }"
    for change in (patches_from_tokens, patches_for_tokens):
        graph = graph_of(text)
        change(graph, artefact(1))
        assert [node.op for node in graph.nodes] == ["Relu", "KeepTopK"]
