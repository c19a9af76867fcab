"""What a pass is: a function over the graph that does one thing and counts the places it did it in."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import onnx_graphsurgeon as gs

from exporter.artefact import Artefact
from exporter.lowering.markers import DOMAIN

__all__ = ["Linear", "Pass", "as_linear", "insert_before", "markers", "replace"]


Pass: TypeAlias = Callable[[gs.Graph, Artefact], int]


@dataclass(frozen=True)
class Linear:
    """A linear layer found in a graph: result = tokens · weight + bias, weight [in, out]; `bias` None for none.

    `nodes` are the MatMul and, where there is a bias, the Add behind it.
    """

    tokens: gs.Variable
    weight: np.ndarray[Any, Any]
    bias: np.ndarray[Any, Any] | None
    nodes: tuple[gs.Node, ...]


def as_linear(result: gs.Tensor) -> Linear | None:
    """The linear layer that gives a tensor, None where it is something else."""
    node = result.inputs[0] if result.inputs else None
    if node is None or node.op not in ("Add", "MatMul") or not isinstance(node.inputs[1], gs.Constant):
        return None
    source, values = node.inputs[0], node.inputs[1].values
    if node.op == "MatMul":
        return Linear(source, values, None, (node,)) if values.ndim == 2 else None
    linear = as_linear(source)
    if linear is None or linear.bias is not None or len(source.outputs) != 1:
        return None
    if values.shape != linear.weight.shape[1:]:
        return None
    return Linear(linear.tokens, linear.weight, values, (*linear.nodes, node))


def markers(graph: gs.Graph, kind: str) -> Iterator[gs.Node]:
    """The `star` nodes of one kind, first block to last."""
    return iter([node for node in graph.nodes if node.op == kind and node.domain == DOMAIN])


def replace(graph: gs.Graph, old: gs.Node, new: list[gs.Node]) -> None:
    """Put `new` in the place of `old`; the last of `new` takes over its outputs."""
    outputs = list(old.outputs)
    insert_before(graph, old, new)
    old.outputs.clear()
    old.inputs.clear()
    new[-1].outputs = outputs
    del graph.nodes[_place(graph, old)]


def insert_before(graph: gs.Graph, node: gs.Node, new: list[gs.Node]) -> None:
    """Put `new` before `node`."""
    place = _place(graph, node)
    graph.nodes[place:place] = new


def _place(graph: gs.Graph, node: gs.Node) -> int:
    return next(index for index, each in enumerate(graph.nodes) if each is node)
