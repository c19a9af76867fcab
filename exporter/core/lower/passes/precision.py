"""What a file computes in and is fed with: half precision, uint8 pixels, the operators of opset 17.

In half precision, Cast nodes state which precision each node uses. Runtimes that take precision from the graph
alone (TensorRT from 11 on) and those without a flag for it (ONNX Runtime) then compute the same.
"""

import math
from collections.abc import Collection
from typing import TypeAlias

import ml_dtypes
import numpy as np
import onnx
import onnx_graphsurgeon as gs

from exporter.core.base.artefact import Artefact
from exporter.core.base.large_onnx import checkable
from exporter.core.base.tensor_names import Array
from exporter.core.lower.decisions import scoring_nodes
from exporter.core.lower.graph import Builder, producer, replace, sort_nodes
from exporter.core.prune.ops.onnx_functions import DOMAIN

# Operators whose row sums lose too much in half precision, and those that create floats from no float tensor.
IN_FP32 = {
    "LayerNormalization",
    "RMSNormalization",
    "ConstantOfShape",
    "Range",
    "EyeLike",
}

FP32 = np.dtype(np.float32)


# The casts and the rounded constants that are there, by tensor and precision.
Converted: TypeAlias = dict[tuple[str, np.dtype], gs.Tensor]


def to_fp16(graph: gs.Graph, artefact: Artefact) -> int:
    """Convert to fp16 all but LayerNorm, the class row, the scores and the selection: see `_to_half`."""
    return _to_half(graph, artefact, np.dtype(np.float16))


def to_bf16(graph: gs.Graph, artefact: Artefact) -> int:
    """Convert the same nodes to bf16, which has fp32's range."""
    return _to_half(graph, artefact, np.dtype(ml_dtypes.bfloat16))


def _to_half(graph: gs.Graph, artefact: Artefact, half: np.dtype) -> int:
    """Assign every node one precision, insert a Cast on every edge between two; return the number of half ones.

    1. `images` and `logits` stay fp32, so that a file of another precision can replace the fp32 one.
    2. All nodes from the product that computes the class row to the survivors stay fp32: a score rounded to 11 bits
       would tie with its neighbours, and position decides ties.
    3. Weights are stored in the precision of the node that reads them; twice, where nodes of both precisions do.
    4. The nodes that the artefact names stay fp32, since their values are too large for fp16.
    """
    exact = scoring_nodes(graph, artefact) | _beyond(graph, artefact)
    infer_dtypes(graph)
    floats = {name for name, tensor in graph.tensors().items() if tensor.dtype == FP32}
    converted: Converted = {}
    halved = 0
    # A copy, since casts are appended; sorted, since a node's inputs must have their precision before it.
    for node in list(sort_nodes(graph).nodes):
        in_fp32 = node.op in IN_FP32 or node.domain == DOMAIN or id(node) in exact
        precision = FP32 if in_fp32 else half
        node.inputs = [
            in_precision(graph, tensor, precision, converted)
            if tensor.name in floats
            else tensor
            for tensor in node.inputs
        ]
        results = [tensor for tensor in node.outputs if tensor.name in floats]
        for tensor in results:
            tensor.dtype = precision
        if node.op == "Cast" and results:
            node.attrs["to"] = onnx_type(precision)
        if node.op == "Attention" and precision != FP32:
            node.attrs["softmax_precision"] = int(onnx.TensorProto.FLOAT)
        halved += bool(results) and precision != FP32
    halves = {output.name for output in graph.outputs if output.dtype == half}
    keep_outputs(graph, halves, FP32)
    return halved


def _beyond(graph: gs.Graph, artefact: Artefact) -> frozenset[int]:
    """Return the nodes that the artefact keeps in fp32, each by its `id`.

    A pair's second half before them too: TensorRT sees no pair where a Cast follows it.
    """
    named = [node for node in graph.nodes if node.name in set(artefact.in_fp32)]
    operands = [tensor for node in named for tensor in node.inputs]
    pairs = [producer(tensor, "DequantizeLinear") for tensor in operands]
    return frozenset(id(node) for node in (*named, *pairs) if node is not None)


def in_precision(
    graph: gs.Graph, tensor: gs.Tensor, precision: np.dtype, converted: Converted
) -> gs.Tensor:
    """Return the tensor in a precision: itself, a converted constant, or the result of a shared Cast."""
    if tensor.dtype == precision:
        return tensor
    key = (tensor.name, precision)
    if key not in converted:
        name = f"{tensor.name}/{precision.name}"
        if isinstance(tensor, gs.Constant):
            converted[key] = gs.Constant(name, _rounded(tensor.values, precision))
        else:
            converted[key] = gs.Variable(name, precision, tensor.shape)
            _cast(graph, tensor, converted[key])
    return converted[key]


def _cast(graph: gs.Graph, source: gs.Tensor, result: gs.Tensor) -> None:
    to = {"to": onnx_type(result.dtype)}
    graph.nodes.append(gs.Node("Cast", f"{result.name}/cast", to, [source], [result]))


def keep_outputs(graph: gs.Graph, names: Collection[str], before: np.dtype) -> None:
    """Cast the outputs of these names back to what they were before."""
    for place, output in enumerate(graph.outputs):
        if output.name in names and output.dtype != before:
            restored = gs.Variable(output.name, before, output.shape)
            output.name = f"{output.name}/{output.dtype.name}"
            _cast(graph, output, restored)
            graph.outputs[place] = restored


def infer_dtypes(graph: gs.Graph) -> None:
    """Fill in the dtypes that earlier passes left open; one that stays open would keep its tensor as it is."""
    exported = checkable(gs.export_onnx(graph, do_type_check=False))
    model = onnx.shape_inference.infer_shapes(exported)
    kinds = {
        value.name: value.type.tensor_type.elem_type for value in model.graph.value_info
    }
    for name, tensor in graph.tensors().items():
        if isinstance(tensor, gs.Variable) and tensor.dtype is None and kinds.get(name):
            tensor.dtype = onnx.helper.tensor_dtype_to_np_dtype(kinds[name])
    unknown = [
        name
        for name, tensor in graph.tensors().items()
        if tensor.dtype is None and not tensor.is_empty()
    ]
    if unknown:
        raise RuntimeError(f"no dtype is known of {', '.join(unknown)}")


def _rounded(values: Array, precision: np.dtype) -> Array:
    """Round values and keep finite ones finite: fp16 ends at 65504."""
    most = float(ml_dtypes.finfo(precision).max)
    finite = np.isfinite(values)
    return np.where(finite, np.clip(values, -most, most), values).astype(precision)


def onnx_type(precision: np.dtype) -> int:
    """Return ONNX's number for a precision."""
    return int(onnx.helper.np_dtype_to_tensor_dtype(precision))


def uint8_input(graph: gs.Graph, artefact: Artefact) -> int:
    """Make `images` uint8 [batch, 3, H, W]; pixels / 255, − mean, / std follow, in PyTorch's order."""
    (images,) = graph.inputs
    readers = list(images.outputs)
    pixels = gs.Variable(images.name, np.uint8, images.shape)
    preprocessing = artefact.spec.preprocessing
    mean, std = (
        np.array(values, dtype=np.float32).reshape(3, 1, 1)
        for values in (preprocessing.mean, preprocessing.std)
    )
    op = Builder(graph, graph.nodes[0], prefix=images.name)
    share = op.Div(op.Cast(pixels, to=onnx.TensorProto.FLOAT), 255.0)
    normalised = op.Div(op.Sub(share, mean), std)
    normalised.inputs[0].outputs = [images]
    images.name = f"{pixels.name}/normalised"
    graph.inputs = [pixels]
    return len(readers)


OPSET, IR_VERSION = 17, 8  # those of ONNX 1.12

# Those of ReduceSum have been an input since opset 13.
AXES_INPUT_SINCE_18 = frozenset(
    {
        "ReduceL1",
        "ReduceL2",
        "ReduceLogSum",
        "ReduceLogSumExp",
        "ReduceMax",
        "ReduceMean",
        "ReduceMin",
        "ReduceProd",
        "ReduceSumSquare",
    }
)


def opset_17(graph: gs.Graph, _: Artefact) -> int:
    """Declare opset 17 and rewrite the nodes whose form has changed since.

    1. Reductions take their axes as an attribute; since opset 18, as an input.
    2. Split takes sizes, or nothing for equal ones; since opset 18, also a number of outputs.
    3. Gelu is not an operator before opset 20.
    """
    changed = 0
    for node in list(graph.nodes):
        if node.op in AXES_INPUT_SINCE_18 and len(node.inputs) > 1:
            node.attrs["axes"] = node.inputs.pop(1).values.tolist()
            node.attrs.pop("noop_with_empty_axes", None)
        elif node.op == "Split" and "num_outputs" in node.attrs:
            del node.attrs["num_outputs"]
        elif node.op == "Gelu":
            _expand_gelu(graph, node)
        else:
            continue
        changed += 1
    graph.opset = OPSET
    graph.ir_version = IR_VERSION
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
