"""Measure the largest values of tensors in fp16, in fp32: whether fp16 holds them, and which nodes need fp32.

A runtime may compute a file in fp16 in fp32, as ONNX Runtime does on a CPU. What it answers shows no overflow.
"""

import copy
from collections.abc import Collection

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from exporter.core.base.large_onnx import checkable, openable
from exporter.core.base.tensor_names import IMAGES, Array
from exporter.core.lower.measuring import measuring_session

# Images per run.
BATCH = 8
# Other images have larger values than those that are measured: a node whose values come so near stays fp32.
MARGIN = 8
HIGHEST = float(np.finfo(np.float16).max) / MARGIN


def nodes_beyond_fp16(model: onnx.ModelProto, images: Array) -> dict[str, float]:
    """Return the nodes that read, compute or return a value in fp16 above `HIGHEST`, and their largest value.

    The images are as in `largest_halves`. A Cast has no precision of its own.
    """
    largest = largest_halves(model, images)
    beyond = {}
    for node in model.graph.node:
        tensors = (*node.input, *node.output, _logits(node))
        most = max(largest.get(tensor, 0.0) for tensor in tensors)
        if most > HIGHEST and node.op_type != "Cast":
            beyond[node.name] = most
    return beyond


def largest_halves(model: onnx.ModelProto, images: Array) -> dict[str, float]:
    """Return the largest finite absolute value of each tensor in fp16 that a lowered model computes, by name.

    All is computed in fp32. Infinities are those of masks. The images are [n, 3, H, W], as the model takes them.
    An Attention node's logits are no tensor of the file, but are measured too, as `NODE/logits`.
    """
    halves = _halves(model)
    if not halves:
        return {}
    measuring = _in_fp32(model)
    halves += _give_logits(measuring.graph, halves)
    for index, name in enumerate(halves):
        _measure(measuring.graph, name, _result(index))
    with openable(measuring) as content:
        session = measuring_session(content)
    results = [_result(index) for index in range(len(halves))]
    largest = np.zeros(len(halves))
    for start in range(0, len(images), BATCH):
        values = session.run(results, {IMAGES: images[start : start + BATCH]})
        largest = np.maximum(largest, values)
    return dict(zip(halves, largest.tolist(), strict=True))


def _halves(model: onnx.ModelProto) -> list[str]:
    """Return the tensors in fp16 that nodes compute."""
    values = onnx.shape_inference.infer_shapes(checkable(model)).graph.value_info
    halves = {
        value.name
        for value in values
        if value.type.tensor_type.elem_type == TensorProto.FLOAT16
    }
    computed = [name for node in model.graph.node for name in node.output]
    return [name for name in computed if name in halves]


def _give_logits(graph: onnx.GraphProto, halves: Collection[str]) -> list[str]:
    """Let Attention nodes that are in fp16 return their logits too; return the names of these."""
    attentions = [
        node
        for node in graph.node
        if node.op_type == "Attention" and node.output[0] in halves
    ]
    for node in attentions:
        # The optional outputs before are a cache of keys and values.
        node.output.extend(["", "", _logits(node)])
    return [_logits(node) for node in attentions]


def _logits(node: onnx.NodeProto) -> str:
    return f"{node.name}/logits"


def _in_fp32(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy in which all that is in fp16 is in fp32; weights keep their rounded values."""
    copied = copy.deepcopy(model)
    graph = copied.graph
    # The types of the tensors are no longer these.
    del graph.value_info[:]
    for weights in graph.initializer:
        _widen(weights)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                _widen(attribute.t)
            elif attribute.name == "to" and attribute.i == TensorProto.FLOAT16:
                attribute.i = TensorProto.FLOAT
    return copied


def _widen(tensor: TensorProto) -> None:
    if tensor.data_type == TensorProto.FLOAT16:
        values = numpy_helper.to_array(tensor).astype(np.float32)
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))


def _measure(graph: onnx.GraphProto, name: str, result: str) -> None:
    """Add an output with the largest finite absolute value of a tensor in fp32."""
    zero = numpy_helper.from_array(np.zeros((), np.float32), f"{result}/zero")
    graph.initializer.append(zero)
    infinite, absolute = f"{result}/infinite", f"{result}/absolute"
    finite, choices = f"{result}/finite", [infinite, zero.name, absolute]
    node = helper.make_node
    graph.node.append(node("IsInf", [name], [infinite]))
    graph.node.append(node("Abs", [name], [absolute]))
    graph.node.append(node("Where", choices, [finite]))
    graph.node.append(node("ReduceMax", [finite], [result], keepdims=0))
    graph.output.append(helper.make_tensor_value_info(result, TensorProto.FLOAT, []))


def _result(index: int) -> str:
    return f"largest/{index}"
