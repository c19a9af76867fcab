"""What later opsets brought, in the words of opset 17: the last one that TensorRT 8.6 reads."""

import math
from typing import TypeAlias

import numpy as np
import onnx_graphsurgeon as gs

from exporter.artefact import Artefact
from exporter.lowering.passes.base import replace

__all__ = ["opset_17"]

OPSET = 17

# An operator, and what it takes beside the value before it.
Step: TypeAlias = tuple[str, gs.Tensor | float | None]


def opset_17(graph: gs.Graph, artefact: Artefact) -> int:
    """Declare opset 17 and rewrite the nodes that were written otherwise then.

    1. Reductions (18) take their axes as an input; then they were an attribute.
    2. Split (18) may be told the number of its outputs; then their sizes, or nothing for equal ones.
    3. Gelu (20) was no operator.
    """
    del artefact
    changed = 0
    for node in list(graph.nodes):
        if node.op in ("ReduceMean", "ReduceMax", "ReduceMin") and len(node.inputs) > 1:
            node.attrs["axes"] = node.inputs.pop(1).values.tolist()
            node.attrs.pop("noop_with_empty_axes", None)
        elif node.op == "Split" and "num_outputs" in node.attrs:
            del node.attrs["num_outputs"]
        elif node.op == "Gelu":
            _expand_gelu(graph, node)
        else:
            continue
        changed += 1
    graph.opset, graph.import_domains = OPSET, None  # None: the one above, and what else the nodes use
    return changed


def _expand_gelu(graph: gs.Graph, node: gs.Node) -> None:
    """The product x · (1 + erf(x / √2)) / 2; or with tanh(√(2/π) (x + 0.044715 x³)) in the place of erf."""
    (x,) = node.inputs
    name = node.outputs[0].name
    if node.attrs.get("approximate", "none") == "tanh":
        cubed: list[Step] = [("Mul", x), ("Mul", x), ("Mul", 0.044715), ("Add", x)]
        inner = [*cubed, ("Mul", math.sqrt(2 / math.pi)), ("Tanh", None)]
    else:
        inner = [("Mul", math.sqrt(0.5)), ("Erf", None)]
    nodes: list[gs.Node] = []
    value = x
    for op, operand in (*inner, ("Add", 1.0), ("Mul", x), ("Mul", 0.5)):
        place = f"{name}/gelu_{len(nodes)}"
        inputs = [value] if operand is None else [value, _operand(operand, place)]
        result = gs.Variable(place, np.float32, x.shape)
        nodes.append(gs.Node(op, f"{place}/{op.lower()}", {}, inputs, [result]))
        value = result
    replace(graph, node, nodes)


def _operand(value: gs.Tensor | float, place: str) -> gs.Tensor:
    return gs.Constant(f"{place}/by", np.array(value, np.float32)) if isinstance(value, float) else value
