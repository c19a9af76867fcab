"""The patch embedding as a linear layer: the same tokens, and other embeddings left alone."""

import numpy as np
import onnx_graphsurgeon as gs
import pytest

from exporter.lowering.passes.patches_as_linear import patches_as_linear
from tests.lowering.graphs import applied, noise, run

DIM, HEIGHT, WIDTH = 5, 8, 12


def embedding(patch: tuple[int, int] = (4, 3), bias: bool = True, **attributes: list[int] | int) -> gs.Graph:
    """Conv, Reshape, Transpose, as the exporter writes them."""
    given = {"strides": list(patch), "pads": [0, 0, 0, 0], "group": 1, **attributes}
    constants = [gs.Constant("weight", noise(DIM, 3, *patch))]
    if bias:
        constants.append(gs.Constant("bias", noise(DIM)))
    images = gs.Variable("images", np.float32, ["batch", 3, HEIGHT, WIDTH])
    grid, flat = (gs.Variable(name, np.float32) for name in ("grid", "flat"))
    tokens = gs.Variable("tokens", np.float32, ["batch", None, DIM])
    nodes = [
        gs.Node("Conv", "conv", given, [images, *constants], [grid]),
        gs.Node("Reshape", "flatten", {}, [grid, gs.Constant("shape", np.array([0, DIM, -1]))], [flat]),
        gs.Node("Transpose", "turn", {"perm": [0, 2, 1]}, [flat], [tokens]),
    ]
    return gs.Graph(nodes, [images], [tokens], opset=20)


@pytest.mark.ort
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("batch", [1, 3])
def test_the_same_tokens(batch: int, bias: bool) -> None:
    graph, images = embedding(bias=bias), noise(batch, 3, HEIGHT, WIDTH)
    expected = run(graph, images=images)["tokens"]
    assert applied(patches_as_linear, graph) == 1
    ops = [node.op for node in graph.nodes]
    assert "Conv" not in ops
    assert ops.count("MatMul") == 1
    assert ops.count("Add") == int(bias)
    np.testing.assert_allclose(run(graph, images=images)["tokens"], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "graph",
    [
        embedding(strides=[2, 3]),
        embedding(pads=[1, 1, 1, 1]),
        embedding(dilations=[2, 1]),
        embedding(patch=(3, 3)),
    ],
    ids=["patches that overlap", "padding", "dilation", "a rest"],
)
def test_other_embeddings_are_left_alone(graph: gs.Graph) -> None:
    assert applied(patches_as_linear, graph) == 0
    assert graph.nodes[0].op == "Conv"
