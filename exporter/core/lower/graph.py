"""Search a graph and replace its nodes; new ones are written in the notation of the math.

`op.Softmax(op.Mul(query, scale), axis=-1)` adds two nodes, by `Builder`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnx_graphsurgeon as gs
from onnx_graphsurgeon.logger import G_LOGGER

from exporter.core.base.tensor_names import Array
from exporter.core.prune.ops.onnx_functions import DOMAIN

# An operator's input: a tensor or a constant. A float becomes float32; an int or a list of ints becomes int64.
Operand: TypeAlias = gs.Tensor | Array | float | list[int]
# The sizes of a tensor; a string is a dynamic one.
Dimensions: TypeAlias = list[int | str]
# The end of any axis, for Slice.
END = int(np.iinfo(np.int64).max)

# Operators whose result dtype does not follow from the inputs.
_INT64 = np.dtype(np.int64)
_BOOL = np.dtype(bool)
_DTYPES = {
    **dict.fromkeys(("Shape", "Size", "NonZero", "ArgMax", "ArgMin"), _INT64),
    **dict.fromkeys(("Less", "LessOrEqual", "Greater", "GreaterOrEqual"), _BOOL),
    **dict.fromkeys(("Equal", "And", "Or", "Not"), _BOOL),
}


class Builder:
    """Write nodes before an existing node, and return their results.

        op = Builder(graph, before=node, prefix="context_03")
        logits = op.MatMul(query, op.Transpose(key, perm=[0, 1, 3, 2]), name="query_key")

    A node and its result are named `prefix/name`. The default name is the operator's in lower case, with a number
    where the name is taken. A result's dtype follows from the operator and its operands.
    """

    def __init__(
        self, graph: gs.Graph, before: gs.Node | None = None, *, prefix: str
    ) -> None:
        self._graph = graph
        self._before = before
        self.prefix = prefix
        self._taken: set[str] = set()

    def __getattr__(self, operator: str) -> Callable[..., gs.Variable]:
        """Return a standard operator as a method."""
        if not onnx.defs.has(operator):
            raise AttributeError(f"ONNX has no operator {operator}")
        return partial(self, operator)

    def __call__(
        self, operator: str, *operands: Operand, out: str = "", **options: Any
    ) -> gs.Variable:
        """Write one node and return its first result, named `out`, by default as the node; see `several`."""
        return self.several(operator, *operands, outs=(out,), **options)[0]

    def several(
        self,
        operator: str,
        *operands: Operand,
        outs: tuple[str, ...],
        name: str = "",
        shape: Dimensions | None = None,
        domain: str = "",
        **attributes: Any,
    ) -> list[gs.Variable]:
        """Write one node and return its results.

        Args:
            operator: An operator of ONNX, or of `domain`.
            operands: The inputs, in order.
            outs: The full names of the results; "" for the node's.
            name: The node's name, after the prefix.
            shape: The results' shape, where known.
            domain: The operator's domain, "" for ONNX's own.
            attributes: The node's attributes.
        """
        name = self._free(name or operator.lower())
        inputs = [
            self._tensor(operand, f"{name}/{place}")
            for place, operand in enumerate(operands)
        ]
        results = []
        for place, out in enumerate(outs):
            dtype = _dtype(operator, place, inputs, attributes)
            results.append(gs.Variable(out or name, dtype, shape and list(shape)))
        node = gs.Node(
            operator, name, attributes, inputs, results, domain=domain or None
        )
        nodes = self._graph.nodes
        place = len(nodes) if self._before is None else place_of(self._before, nodes)
        nodes.insert(place, node)
        return results

    def _free(self, name: str) -> str:
        """Return the name after the prefix, with a number where it is taken."""
        free = f"{self.prefix}/{name}"
        number = 1
        while free in self._taken:
            number += 1
            free = f"{self.prefix}/{name}_{number}"
        self._taken.add(free)
        return free

    @staticmethod
    def _tensor(operand: Operand, name: str) -> gs.Tensor:
        if isinstance(operand, gs.Tensor):
            return operand
        values = np.float32(operand) if isinstance(operand, float) else operand
        return gs.Constant(name, np.asarray(values, order="C"))


def place_of(node: gs.Node, nodes: list[gs.Node]) -> int:
    """Return a node's index by identity; GraphSurgeon compares nodes by content."""
    return next(place for place, listed in enumerate(nodes) if listed is node)


def _dtype(
    operator: str, place: int, inputs: list[gs.Tensor], attributes: dict[str, Any]
) -> np.dtype | None:
    """Return the dtype of one result; None where it is not known."""
    if operator == "Cast":
        return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(attributes["to"]))
    if operator == "TopK" and place == 1:
        return _INT64
    read = inputs[1 if operator == "Where" else 0].dtype
    return _DTYPES.get(operator, None if read is None else np.dtype(read))


@dataclass(frozen=True)
class LinearLayer:
    """A linear layer found in a graph: result = tokens · weight + bias, weight [in, out]; `bias` is None for none.

    `nodes` are the MatMul and, where there is a bias, the Add after it.
    """

    tokens: gs.Variable
    weight: Array
    bias: Array | None
    nodes: tuple[gs.Node, ...]


def import_graph(model: onnx.ModelProto) -> gs.Graph:
    """Read a model as a graph. FP8 tensors keep ONNX's type; GraphSurgeon's warning of it would go to stdout."""
    before = G_LOGGER.severity
    G_LOGGER.severity = G_LOGGER.ERROR
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


def has_constants(node: gs.Node) -> bool:
    """Whether all inputs but the first are constants."""
    return all(isinstance(operand, gs.Constant) for operand in node.inputs[1:])


def has_static_rows(tensor: gs.Tensor) -> bool:
    """Whether a tensor has three axes, and static sizes but that of the batch."""
    shape: Any = tensor.shape
    if shape is None or len(shape) != 3:
        return False
    return all(isinstance(size, int) for size in shape[1:])


def as_linear(result: gs.Tensor) -> LinearLayer | None:
    """Return the linear layer that produces a tensor; None where it is something else."""
    node = producer(result)
    if (
        node is None
        or node.op not in ("Add", "MatMul")
        or not isinstance(node.inputs[1], gs.Constant)
    ):
        return None
    source = node.inputs[0]
    values = node.inputs[1].values
    if node.op == "MatMul":
        return LinearLayer(source, values, None, (node,)) if values.ndim == 2 else None
    product = as_linear(source)
    if product is None or product.bias is not None or len(source.outputs) != 1:
        return None
    if values.shape != product.weight.shape[1:]:
        return None
    return LinearLayer(product.tokens, product.weight, values, (*product.nodes, node))


def write_linear(
    op: Builder,
    tokens: gs.Variable,
    weight: Array,
    bias: Array | None,
    shape: Dimensions | None,
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
        node.outputs = [
            output if tensor is result else tensor for tensor in node.outputs
        ]
    del graph.nodes[place_of(old, graph.nodes)]


def expand(
    graph: gs.Graph, writers: Mapping[str, Callable[[Builder, gs.Node], gs.Variable]]
) -> int:
    """Replace the markers of some kinds by what their writers write, and count them."""
    expanded = [node for kind in writers for node in markers(graph, kind)]
    for node in expanded:
        op = Builder(graph, node, prefix=node.outputs[0].name)
        replace(graph, node, writers[node.op](op, node))
    return len(expanded)


def rewire(
    old: gs.Tensor, new: gs.Tensor, readers: Sequence[gs.Node] | None = None
) -> None:
    """Let the nodes that read `old` read `new`, or some of them."""
    for reader in list(old.outputs) if readers is None else readers:
        reader.inputs = [new if tensor is old else tensor for tensor in reader.inputs]


def sort_nodes(graph: gs.Graph) -> gs.Graph:
    """Sort nodes, those of functions too, so that each comes after those it reads; return the graph.

    Nodes that are sorted keep their order. Functions stay in theirs: in a graph that has a subgraph, GraphSurgeon
    0.6.1 would sort them without end.
    """
    if not all(_is_sorted(body.nodes) for body in (graph, *graph.functions)):
        graph.toposort(mode="nodes")
    return graph


def _is_sorted(nodes: Sequence[gs.Node]) -> bool:
    """Return whether they are; False where a subgraph may read more than its node shows."""
    places = {id(node): place for place, node in enumerate(nodes)}
    for place, node in enumerate(nodes):
        if any(isinstance(value, gs.Graph) for value in node.attrs.values()):
            return False
        for tensor in node.inputs:
            if any(places.get(id(writer), -1) > place for writer in tensor.inputs):
                return False
    return True
