"""Convert a graph to half precision with explicit types: Cast nodes state which precision each node uses.

Runtimes that take precision from the graph alone (TensorRT from 11 on) and those without a flag for it
(ONNX Runtime) then compute the same. The pass reads and writes only standard operators.
"""

import ml_dtypes
import numpy as np
import onnx
import onnx_graphsurgeon as gs

from exporter.artefact import Artefact
from exporter.lowering.graph import sort_nodes
from exporter.lowering.markers import DOMAIN
from exporter.lowering.scoring import scoring_nodes

__all__ = ["to_bf16", "to_fp16"]

# Operators whose row sums lose too much in half precision, and those that create floats from no float tensor.
IN_FP32 = {"LayerNormalization", "RMSNormalization", "ConstantOfShape", "Range", "EyeLike"}

FP32 = np.dtype(np.float32)


def to_fp16(graph: gs.Graph, artefact: Artefact) -> int:
    """Convert to fp16 all but LayerNorm, the class row, the scores and the selection: see `_Halver`."""
    return _Halver(graph, artefact, np.dtype(np.float16)).run()


def to_bf16(graph: gs.Graph, artefact: Artefact) -> int:
    """Convert the same nodes to bf16, which has fp32's range."""
    return _Halver(graph, artefact, np.dtype(ml_dtypes.bfloat16)).run()


class _Halver:
    """Assign every node one precision, and insert a Cast on every edge between two precisions.

    1. `images` and `logits` stay fp32, so that a file of another precision can replace the fp32 one.
    2. All nodes from the product that computes the class row to the survivors stay fp32: a score rounded to 11 bits
       would tie with its neighbours, and position decides ties.
    3. Weights are stored in the precision of the node that reads them; twice, where nodes of both precisions do.
    """

    def __init__(self, graph: gs.Graph, artefact: Artefact, half: np.dtype) -> None:
        self._graph, self._half = graph, half
        self._scoring = scoring_nodes(graph, artefact)
        self._turned: dict[tuple[str, np.dtype], gs.Tensor] = {}

    def run(self) -> int:
        """Convert the graph and return the number of nodes in half precision."""
        _infer_dtypes(self._graph)
        floats = {name for name, tensor in self._graph.tensors().items() if tensor.dtype == FP32}
        halved = 0
        for node in list(sort_nodes(self._graph).nodes):
            precision = self._precision(node)
            node.inputs = [self._as(each, precision) if each.name in floats else each for each in node.inputs]
            results = [each for each in node.outputs if each.name in floats]
            for each in results:
                each.dtype = precision
            if node.op == "Cast" and results:
                node.attrs["to"] = _onnx(precision)
            if node.op == "Attention" and precision != FP32:
                node.attrs["softmax_precision"] = int(onnx.TensorProto.FLOAT)
            halved += bool(results) and precision != FP32
        self._keep_outputs()
        return halved

    def _precision(self, node: gs.Node) -> np.dtype:
        exact = node.op in IN_FP32 or node.domain == DOMAIN or id(node) in self._scoring
        return FP32 if exact else self._half

    def _as(self, tensor: gs.Tensor, precision: np.dtype) -> gs.Tensor:
        """Return the tensor in a precision: itself, a converted constant, or the result of a shared Cast."""
        if tensor.dtype == precision:
            return tensor
        key = (tensor.name, precision)
        if key not in self._turned:
            name = f"{tensor.name}/{precision.name}"
            if isinstance(tensor, gs.Constant):
                self._turned[key] = gs.Constant(name, _rounded(tensor.values, precision))
            else:
                self._turned[key] = gs.Variable(name, precision, tensor.shape)
                self._cast(tensor, self._turned[key])
        return self._turned[key]

    def _cast(self, source: gs.Tensor, result: gs.Variable) -> None:
        to = {"to": _onnx(result.dtype)}
        self._graph.nodes.append(gs.Node("Cast", f"{result.name}/cast", to, [source], [result]))

    def _keep_outputs(self) -> None:
        """Cast the model's outputs back to fp32, under their own names."""
        for place, output in enumerate(self._graph.outputs):
            if output.dtype == self._half:
                whole = gs.Variable(output.name, FP32, output.shape)
                output.name = f"{output.name}/{self._half.name}"
                self._cast(output, whole)
                self._graph.outputs[place] = whole


def _infer_dtypes(graph: gs.Graph) -> None:
    """Fill in the dtypes that earlier passes left open; one that stays open would keep its tensor as it is."""
    model = onnx.shape_inference.infer_shapes(gs.export_onnx(graph, do_type_check=False))
    kinds = {value.name: value.type.tensor_type.elem_type for value in model.graph.value_info}
    for name, tensor in graph.tensors().items():
        if isinstance(tensor, gs.Variable) and tensor.dtype is None and kinds.get(name):
            tensor.dtype = onnx.helper.tensor_dtype_to_np_dtype(kinds[name])
    unknown = [
        name for name, tensor in graph.tensors().items() if tensor.dtype is None and not tensor.is_empty()
    ]
    if unknown:
        raise RuntimeError(f"no dtype is known of {', '.join(unknown)}")


def _rounded(values: np.ndarray, precision: np.dtype) -> np.ndarray:
    """Round values and keep finite ones finite: fp16 ends at 65504."""
    most = float(ml_dtypes.finfo(precision).max)
    finite = np.isfinite(values)
    return np.where(finite, np.clip(values, -most, most), values).astype(precision)


def _onnx(precision: np.dtype) -> int:
    return int(onnx.helper.np_dtype_to_tensor_dtype(precision))
