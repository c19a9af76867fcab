"""Convert Gemm to MatMul and Add, the form of a linear layer that all quantizers and later fusions recognise."""

import numpy as np
import onnx_graphsurgeon as gs

from exporter.artefact import Artefact
from exporter.lowering.builder import Builder
from exporter.lowering.graph import linear, nodes_of, replace

__all__ = ["split_gemm"]


def split_gemm(graph: gs.Graph, artefact: Artefact) -> int:
    """Convert every Gemm of activations with a constant matrix; the constants take in factors other than 1."""
    del artefact
    gemms = [node for node in nodes_of(graph, "Gemm") if _is_linear(node)]
    for node in gemms:
        activations, matrix, *added = node.inputs
        turned = matrix.values.T if node.attrs.get("transB", 0) else matrix.values
        alpha, beta = (np.float32(node.attrs.get(key, 1.0)) for key in ("alpha", "beta"))
        bias = added[0].values * beta if added else None
        op = Builder(graph, node, prefix=node.name)
        replace(graph, node, linear(op, activations, turned * alpha, bias, node.outputs[0].shape))
    return len(gemms)


def _is_linear(gemm: gs.Node) -> bool:
    constants = all(isinstance(each, gs.Constant) for each in gemm.inputs[1:])
    return constants and not gemm.attrs.get("transA", 0)
