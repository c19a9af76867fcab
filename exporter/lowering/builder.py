"""Write nodes into a graph in the notation of the math: `op.Softmax(op.Mul(query, scale), axis=-1)`."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnx_graphsurgeon as gs

__all__ = ["Builder", "Operand", "place_of"]

# An operator's input: a tensor or a constant. A float becomes float32; an int or a list of ints becomes int64.
Operand: TypeAlias = gs.Tensor | np.ndarray[Any, Any] | float | list[int]

# Operators whose result dtype does not follow from the inputs.
_INT64, _BOOL = np.dtype(np.int64), np.dtype(bool)
_DTYPES = {
    **dict.fromkeys(("Shape", "Size", "NonZero", "ArgMax", "ArgMin"), _INT64),
    **dict.fromkeys(("Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal", "And", "Or", "Not"), _BOOL),
}


class Builder:
    """Write nodes before an existing node, and return their results.

        op = Builder(graph, before=node, prefix="context_03")
        logits = op.MatMul(query, op.Transpose(key, perm=[0, 1, 3, 2]), name="query_key")

    A node and its result are named `prefix/name`. The default name is the operator's in lower case, with a number
    where the name is taken. A result's dtype follows from the operator and its operands.
    """

    def __init__(self, graph: gs.Graph, before: gs.Node | None = None, *, prefix: str) -> None:
        self._graph, self._before, self.prefix = graph, before, prefix
        self._taken: set[str] = set()

    def __getattr__(self, operator: str) -> Callable[..., gs.Variable]:
        """Return a standard operator as a method."""
        if not onnx.defs.has(operator):
            raise AttributeError(f"ONNX has no operator {operator}")
        return partial(self, operator)

    def __call__(
        self,
        operator: str,
        *operands: Operand,
        name: str = "",
        out: str = "",
        shape: list[int | str] | None = None,
        domain: str = "",
        **attributes: Any,
    ) -> gs.Variable:
        """Write one node and return its first result.

        Args:
            operator: An operator of ONNX, or of `domain`.
            operands: The inputs, in order.
            name: The node's name, after the prefix.
            out: The full name of the result; by default the node's.
            shape: The result's shape, where known.
            domain: The operator's domain, "" for ONNX's own.
            attributes: The node's attributes.
        """
        return self.several(
            operator, *operands, outs=(out,), name=name, shape=shape, domain=domain, **attributes
        )[0]

    def several(
        self,
        operator: str,
        *operands: Operand,
        outs: tuple[str, ...],
        name: str = "",
        shape: list[int | str] | None = None,
        domain: str = "",
        **attributes: Any,
    ) -> list[gs.Variable]:
        """Write one node and return its results, named `outs`; see `__call__`."""
        name = self._free(name or operator.lower())
        inputs = [self._tensor(each, f"{name}/{place}") for place, each in enumerate(operands)]
        results = [
            gs.Variable(out or name, _dtype(operator, place, inputs, attributes), shape and list(shape))
            for place, out in enumerate(outs)
        ]
        node = gs.Node(operator, name, attributes, inputs, results, domain=domain or None)
        nodes = self._graph.nodes
        place = len(nodes) if self._before is None else place_of(self._before, nodes)
        nodes.insert(place, node)
        return results

    def _free(self, name: str) -> str:
        """Return the name after the prefix, with a number where it is taken."""
        whole, number = f"{self.prefix}/{name}", 1
        while whole in self._taken:
            number += 1
            whole = f"{self.prefix}/{name}_{number}"
        self._taken.add(whole)
        return whole

    @staticmethod
    def _tensor(operand: Operand, name: str) -> gs.Tensor:
        if isinstance(operand, gs.Tensor):
            return operand
        values = np.float32(operand) if isinstance(operand, float) else operand
        return gs.Constant(name, np.asarray(values, order="C"))


def place_of(node: gs.Node, nodes: list[gs.Node]) -> int:
    """Return a node's index by identity; GraphSurgeon compares nodes by content."""
    return next(place for place, each in enumerate(nodes) if each is node)


def _dtype(operator: str, place: int, inputs: list[gs.Tensor], attributes: dict[str, Any]) -> np.dtype | None:
    """Return the dtype of one result; None where it is not known."""
    if operator == "Cast":
        return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(attributes["to"]))
    if operator == "TopK" and place == 1:
        return _INT64
    read = inputs[1 if operator == "Where" else 0].dtype
    return _DTYPES.get(operator, None if read is None else np.dtype(read))
