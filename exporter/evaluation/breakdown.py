"""Sum kernel times of a model, or layer times of an engine, by class of operator."""

import re
from collections.abc import Collection, Iterable, Mapping

from exporter.runtimes.onnxruntime_runner import Kernel
from exporter.runtimes.tensorrt.layer_info import EngineLayer
from exporter.tensor_names import CONTEXT

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

    `selection` are the nodes that choose or move patches, counted so whatever their operator. A fusion keeps a
    node's name and appends to it after a slash.
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


# Words in a layer's name, type or kernel, in the order in which they count.
_WORDS = {
    "linear": re.compile(r"gemm|matmul|matrixmultiply|matrix_multiply|fully_?connected|conv", re.IGNORECASE),
    "norm": re.compile(r"layer_?norm|normalization|meansub", re.IGNORECASE),
    "activation": re.compile(r"gelu|erf|sigmoid|tanh", re.IGNORECASE),
    "selection": re.compile(r"topk|gathernd|cdfretain", re.IGNORECASE),
    "layout": re.compile(
        r"reformat|shuffle|copy|transpose|reshape|slice|gather|concat|move|cast", re.IGNORECASE
    ),
}


def engine_breakdown(
    times_ms: Mapping[str, float], layers: Iterable[EngineLayer], selection: Collection[str] = ()
) -> dict[str, float]:
    """Return the milliseconds per run of each class, from the times by name and the layers of an engine's profile.

    A layer of `selection` nodes alone counts as selection; one that fuses them with others counts by its
    kernel.
    """
    known = {layer.name: layer for layer in layers}
    total = dict.fromkeys(CLASSES, 0.0)
    for name, time_ms in times_ms.items():
        total[_class_of_layer(name, known.get(name), frozenset(selection))] += time_ms
    return total


def nodes_of(layers: Iterable[EngineLayer]) -> frozenset[str]:
    """Return the names of all ONNX nodes of an engine."""
    return frozenset(node for layer in layers for node in layer.nodes)


def _class_of_layer(name: str, layer: EngineLayer | None, selection: frozenset[str]) -> str:
    nodes = frozenset() if layer is None else layer.nodes
    if nodes and nodes <= selection:
        return "selection"
    if any(node.startswith(CONTEXT) for node in nodes) or (layer is not None and layer.is_fused_attention):
        return "attention"
    words = name if layer is None else f"{name} {layer.kind} {layer.tactic}"
    return next((each for each, pattern in _WORDS.items() if pattern.search(words)), "other")
