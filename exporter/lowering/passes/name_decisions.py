"""Give the survivors, the gathered tokens and the attention outputs of each layer names that last."""

import onnx_graphsurgeon as gs

from exporter.lowering.markers import ATTENTION, CLASS_ROW, KEEP_TOP_K, TAKE_TOKENS
from exporter.lowering.passes.base import Facts, markers
from exporter.tensor_names import class_row_name, context_name, keep_name, tokens_name

__all__ = ["name_decisions"]


def name_decisions(graph: gs.Graph, facts: Facts) -> int:
    """`keep_NN`, `tokens_NN` and `class_row_NN` in pruning layers, `context_NN` in every layer; NN from 1.

    The twins of `check` and the verification after export find layers by these names.
    """
    pruning = facts.schedule.pruning_layers
    # A scorer without an intra-layer score reads no class row, and the exporter drops what nobody reads.
    scored = pruning if any(markers(graph, CLASS_ROW)) else ()
    names = {
        KEEP_TOP_K: [keep_name(layer + 1) for layer in pruning],
        TAKE_TOKENS: [tokens_name(layer + 1) for layer in pruning],
        CLASS_ROW: [class_row_name(layer + 1) for layer in scored],
        ATTENTION: [context_name(layer + 1) for layer in range(facts.spec.depth)],
    }
    for kind, wanted in names.items():
        for node, name in zip(markers(graph, kind), wanted, strict=True):
            node.outputs[0].name = name
            node.name = f"{kind}/{name}"
    return sum(map(len, names.values()))
