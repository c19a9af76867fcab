"""Sum an engine's layer times by class of operator, from the ONNX nodes and the kernel that each layer names."""

import re
from collections.abc import Collection, Iterable, Mapping

from exporter.evaluation.benchmark.breakdown import CLASSES
from exporter.runtimes.tensorrt.layer_info import Layer
from exporter.tensor_names import CONTEXT

__all__ = ["engine_breakdown", "nodes_of"]

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
    times_ms: Mapping[str, float], layers: Iterable[Layer], selection: Collection[str] = ()
) -> dict[str, float]:
    """Return the milliseconds per run of each class, in the order of CLASSES.

    Args:
        times_ms: The time of each layer, by its name.
        layers: The layers of the engine's profile.
        selection: Names of ONNX nodes that choose or move patches. A layer of such nodes alone counts as selection;
            one that fuses them with others counts by its kernel.
    """
    known = {layer.name: layer for layer in layers}
    total = dict.fromkeys(CLASSES, 0.0)
    for name, time_ms in times_ms.items():
        total[_class_of(name, known.get(name), frozenset(selection))] += time_ms
    return total


def nodes_of(layers: Iterable[Layer]) -> frozenset[str]:
    """Return the names of all ONNX nodes of an engine."""
    return frozenset(node for layer in layers for node in layer.nodes)


def _class_of(name: str, layer: Layer | None, selection: frozenset[str]) -> str:
    nodes = frozenset() if layer is None else layer.nodes
    if nodes and nodes <= selection:
        return "selection"
    if any(node.startswith(CONTEXT) for node in nodes) or (layer is not None and layer.is_fused_attention):
        return "attention"
    words = name if layer is None else f"{name} {layer.kind} {layer.tactic}"
    return next((each for each, pattern in _WORDS.items() if pattern.search(words)), "other")
