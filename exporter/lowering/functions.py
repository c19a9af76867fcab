"""Add the bodies of nodes that ONNX does not define to a model that has such nodes."""

from collections.abc import Sequence
from itertools import product

import onnx
from onnx import inliner

from exporter.ops.cdf_retain.onnx_function import (
    CDF_RETAIN,
    CDF_RETAIN_PADDED,
    DOMAIN,
    WIDEST,
    cdf_retain_function,
    cdf_retain_padded_function,
)
from exporter.ops.select_top_k import SELECT_TOP_K, select_top_k_function

__all__ = ["with_functions"]


def with_functions(model: onnx.ModelProto, opset: int, widest: Sequence[int]) -> onnx.ModelProto:
    """Add the local functions of CdfRetain and SelectTopK.

    CdfRetainPadded, which no runtime supports, is replaced by standard operators.

    Args:
        model: A model that calls some of them, or none; all its nodes have names.
        opset: Of the bodies.
        widest: The most patches that each pruning layer keeps. CdfRetain carries it for TensorRT, which must know
            a size that depends on nothing computed; its function does not read it.
    """
    calls = [node for node in model.graph.node if node.domain == DOMAIN]
    kinds = {node.op_type for node in calls}
    if CDF_RETAIN in kinds:
        model.functions.append(cdf_retain_function(opset))
        for node, count in zip(calls, widest, strict=True):
            node.attribute.append(onnx.helper.make_attribute(WIDEST, count))
    if SELECT_TOP_K in kinds:
        model.functions.append(select_top_k_function(opset))
    if CDF_RETAIN_PADDED in kinds:
        model = _with_padded_inlined(model, opset)
    if kinds <= {CDF_RETAIN_PADDED}:
        own = [each for each in model.opset_import if each.domain != DOMAIN]
        del model.opset_import[:]
        model.opset_import.extend(own)
    return model


def _with_padded_inlined(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """Replace CdfRetainPadded by its body, whose nodes are named after the call and what they give in the body.

    A name tells later steps and logs which node it is; the inliner leaves nodes without names without.
    """
    function = cdf_retain_padded_function(opset)
    calls = [node.name for node in model.graph.node if node.op_type == CDF_RETAIN_PADDED]
    model.functions.append(function)
    model = inliner.inline_selected_functions(model, [(DOMAIN, CDF_RETAIN_PADDED)])
    inlined = [node for node in model.graph.node if not node.name]
    for node, (call, step) in zip(inlined, product(calls, function.node), strict=True):
        node.name = f"{call}/{step.output[0]}"
    return model
