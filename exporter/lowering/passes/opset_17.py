"""Rewrite operators of later opsets in opset 17, for TensorRT 8.6, which ends there, and old ONNX Runtimes."""

import math

import onnx_graphsurgeon as gs

from exporter.artefact import Artefact
from exporter.lowering.builder import Builder
from exporter.lowering.graph import replace

__all__ = ["opset_17"]

OPSET, IR_VERSION = 17, 8  # those of ONNX 1.12


def opset_17(graph: gs.Graph, artefact: Artefact) -> int:
    """Declare opset 17 and rewrite the nodes whose form has changed since.

    1. Reductions take their axes as an attribute; since opset 18, as an input.
    2. Split takes sizes, or nothing for equal ones; since opset 18, also a number of outputs.
    3. Gelu is not an operator before opset 20.
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
    graph.opset, graph.ir_version = OPSET, IR_VERSION
    graph.import_domains = None  # None: the opset above, and the nodes' other domains
    return changed


def _expand_gelu(graph: gs.Graph, node: gs.Node) -> None:
    """Write x · (1 + erf(x / √2)) / 2, or with tanh(√(2/π) (x + 0.044715 x³)) instead of erf."""
    (x,) = node.inputs
    op = Builder(graph, node, prefix=f"{node.outputs[0].name}/gelu")
    if node.attrs.get("approximate", "none") == "tanh":
        cubed = op.Mul(op.Mul(op.Mul(x, x), x), 0.044715)
        curve = op.Tanh(op.Mul(op.Add(cubed, x), math.sqrt(2 / math.pi)))
    else:
        curve = op.Erf(op.Mul(x, math.sqrt(0.5)))
    replace(graph, node, op.Mul(op.Mul(op.Add(curve, 1.0), x), 0.5))
