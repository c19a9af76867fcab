"""Give the survivors, the gathered tokens and the attention outputs of each layer names that last."""

import onnx_graphsurgeon as gs

from exporter.lowering.markers import ATTENTION, KEEP_TOP_K, TAKE_TOKENS
from exporter.lowering.passes.base import Facts, keep_name, markers

__all__ = ["name_decisions"]


def name_decisions(graph: gs.Graph, facts: Facts) -> int:
    """`keep_NN` and `tokens_NN` in pruning layers, `context_NN` in every layer; NN counts from 1.

    The twins of `check` and the verification after export find layers by these names.
    """
    pruning = facts.schedule.pruning_layers
    names = {
        KEEP_TOP_K: [keep_name(layer) for layer in pruning],
        TAKE_TOKENS: [f"tokens_{layer + 1:02d}" for layer in pruning],
        ATTENTION: [f"context_{layer + 1:02d}" for layer in range(facts.spec.depth)],
    }
    for kind, wanted in names.items():
        for node, name in zip(markers(graph, kind), wanted, strict=True):
            node.outputs[0].name = name
            node.name = f"{kind}/{name}"
    return sum(map(len, names.values()))
