"""Search a graph and replace its nodes; the helpers that passes share."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx_graphsurgeon as gs
from onnx_graphsurgeon.logger import G_LOGGER

from exporter.lowering.builder import Builder, place_of
from exporter.lowering.markers import DOMAIN

__all__ = [
    "Linear",
    "as_linear",
    "import_graph",
    "linear",
    "markers",
    "nodes_of",
    "producer",
    "replace",
    "rewire",
    "sort_nodes",
]


@dataclass(frozen=True)
class Linear:
    """A linear layer found in a graph: result = tokens · weight + bias, weight [in, out]; `bias` is None for none.

    `nodes` are the MatMul and, where there is a bias, the Add after it.
    """

    tokens: gs.Variable
    weight: np.ndarray[Any, Any]
    bias: np.ndarray[Any, Any] | None
    nodes: tuple[gs.Node, ...]


def import_graph(model: onnx.ModelProto) -> gs.Graph:
    """Read a model as a graph. FP8 tensors keep ONNX's type; GraphSurgeon's warning of it would go to stdout."""
    before, G_LOGGER.severity = G_LOGGER.severity, G_LOGGER.ERROR
    try:
        return gs.import_onnx(model)
    finally:
        G_LOGGER.severity = before


def markers(graph: gs.Graph, kind: str) -> list[gs.Node]:
    """Return the `star` nodes of one kind, first block to last."""
    return [node for node in graph.nodes if node.op == kind and node.domain == DOMAIN]


def nodes_of(graph: gs.Graph, operator: str) -> list[gs.Node]:
    """Return the nodes of one standard ONNX operator, in the graph's order."""
    return [node for node in graph.nodes if node.op == operator and not node.domain]


def producer(tensor: gs.Tensor, operator: str = "") -> gs.Node | None:
    """Return the node that produces a tensor; None where there is none or it is another operator."""
    node = tensor.inputs[0] if tensor.inputs else None
    return node if node is not None and operator in ("", node.op) else None


def as_linear(result: gs.Tensor) -> Linear | None:
    """Return the linear layer that produces a tensor; None where it is something else."""
    node = producer(result)
    if node is None or node.op not in ("Add", "MatMul") or not isinstance(node.inputs[1], gs.Constant):
        return None
    source, values = node.inputs[0], node.inputs[1].values
    if node.op == "MatMul":
        return Linear(source, values, None, (node,)) if values.ndim == 2 else None
    product = as_linear(source)
    if product is None or product.bias is not None or len(source.outputs) != 1:
        return None
    if values.shape != product.weight.shape[1:]:
        return None
    return Linear(product.tokens, product.weight, values, (*product.nodes, node))


def linear(
    op: Builder,
    tokens: gs.Variable,
    weight: np.ndarray[Any, Any],
    bias: np.ndarray[Any, Any] | None,
    shape: list[int | str] | None,
) -> gs.Variable:
    """Write a linear layer in the form that `as_linear` finds; the result's name is the builder's prefix."""
    if bias is None:
        return op.MatMul(tokens, weight, name="multiply", out=op.prefix, shape=shape)
    product = op.MatMul(tokens, weight, name="multiply", shape=shape)
    return op.Add(product, bias, name="add_bias", out=op.prefix, shape=shape)


def replace(graph: gs.Graph, old: gs.Node, *results: gs.Variable) -> None:
    """Remove `old`; each of `results` takes over one of its outputs, under that output's name."""
    outputs = list(old.outputs)
    old.outputs.clear()
    old.inputs.clear()
    for result, output in zip(results, outputs, strict=True):
        node = result.inputs[0]
        rewire(result, output)
        node.outputs = [output if each is result else each for each in node.outputs]
    del graph.nodes[place_of(old, graph.nodes)]


def rewire(old: gs.Tensor, new: gs.Tensor) -> None:
    """Let all nodes that read `old` read `new`."""
    for reader in list(old.outputs):
        reader.inputs = [new if each is old else each for each in reader.inputs]


def sort_nodes(graph: gs.Graph) -> gs.Graph:
    """Sort nodes, those of functions too, so that each comes after those it reads; return the graph.

    Nodes that are sorted keep their order. Functions stay in theirs: in a graph that has a subgraph, GraphSurgeon
    0.6.1 would sort them without end.
    """
    if not all(_is_sorted(each.nodes) for each in (graph, *graph.functions)):
        graph.toposort(mode="nodes")
    return graph


def _is_sorted(nodes: Sequence[gs.Node]) -> bool:
    """Return whether they are; False where a subgraph may read more than its node shows."""
    place = {id(node): at for at, node in enumerate(nodes)}
    for at, node in enumerate(nodes):
        if any(isinstance(value, gs.Graph) for value in node.attrs.values()):
            return False
        if any(place.get(id(before), -1) > at for tensor in node.inputs for before in tensor.inputs):
            return False
    return True
