"""Sum a model's kernel times by class of operator."""

from collections.abc import Collection, Iterable

from exporter.runtimes.onnxruntime.profile import Kernel
from exporter.tensor_names import CONTEXT

__all__ = ["CLASSES", "breakdown"]

CLASSES = ("linear", "attention", "norm", "activation", "selection", "layout", "other")

# Operator names of ONNX and of ONNX Runtime's fusions. All others are "other", mainly the residual sums.
_OPERATORS = {
    "linear": "MatMul Gemm FusedMatMul FusedGemm Conv FusedConv NhwcFusedConv",
    "attention": "Attention MultiHeadAttention GroupQueryAttention PackedMultiHeadAttention Softmax",
    "norm": "LayerNormalization SkipLayerNormalization SimplifiedLayerNormalization RMSNormalization",
    "activation": "Gelu FastGelu BiasGelu QuickGelu Erf Sigmoid Tanh Swish Relu",
    "selection": "TopK GatherND GatherElements CdfRetain SelectTopK",
    "layout": "Transpose Reshape Concat Split Slice Gather Squeeze Unsqueeze Expand Cast Identity Shape Tile "
    "ReorderInput ReorderOutput Flatten",
}
_CLASS_OF = {operator: name for name, operators in _OPERATORS.items() for operator in operators.split()}


def breakdown(kernels: Iterable[Kernel], selection: Collection[str] = ()) -> dict[str, float]:
    """Return the milliseconds per run of each class, in the order of CLASSES.

    Args:
        kernels: The profiled kernels.
        selection: Names of nodes that choose or move patches, counted as "selection" whatever their operator.
            A fusion keeps a node's name and appends to it after a slash.
    """
    time_ms = dict.fromkeys(CLASSES, 0.0)
    for kernel in kernels:
        time_ms[_class_of(kernel, selection)] += kernel.time_ms
    return time_ms


def _class_of(kernel: Kernel, selection: Collection[str]) -> str:
    parts = kernel.name.split("/")
    stems = ("/".join(parts[:count]) for count in range(1, len(parts) + 1))
    if any(stem in selection for stem in stems):
        return "selection"
    # Unfused attention is a few nodes named after its output. Nodes that split the heads do not count.
    if parts[0].startswith(CONTEXT) and kernel.operator in {"Mul", "MatMul", "FusedMatMul", "Softmax"}:
        return "attention"
    return _CLASS_OF.get(kernel.operator, "other")
