"""Gemm as MatMul and Add: the one form of a linear layer that quantizers, and the fusions behind them, all know."""

import numpy as np
import onnx_graphsurgeon as gs

from exporter.artefact import Artefact
from exporter.lowering.passes.base import replace

__all__ = ["split_gemm"]


def split_gemm(graph: gs.Graph, artefact: Artefact) -> int:
    """Every Gemm of activations with a constant matrix; factors other than 1 go into the constants."""
    del artefact
    changed = 0
    for node in [node for node in graph.nodes if node.op == "Gemm"]:
        activations, matrix, *bias = node.inputs
        if node.attrs.get("transA", 0) or not isinstance(matrix, gs.Constant):
            continue
        if any(not isinstance(each, gs.Constant) for each in bias):
            continue
        name, result = node.name, node.outputs[0]
        turned = matrix.values.T if node.attrs.get("transB", 0) else matrix.values
        alpha, beta = (np.float32(node.attrs.get(key, 1.0)) for key in ("alpha", "beta"))
        weight = gs.Constant(f"{name}/weight", np.ascontiguousarray(turned * alpha))
        if not bias:
            replace(graph, node, [gs.Node("MatMul", f"{name}/product", {}, [activations, weight])])
        else:
            product = gs.Variable(f"{name}/product", np.float32, result.shape)
            summand = gs.Constant(f"{name}/bias", bias[0].values * beta)
            new = [
                gs.Node("MatMul", f"{name}/multiply", {}, [activations, weight], [product]),
                gs.Node("Add", f"{name}/add", {}, [product, summand]),
            ]
            replace(graph, node, new)
        changed += 1
    return changed
