"""Give each layer's survivors, gathered tokens and attention outputs their final names."""

import onnx_graphsurgeon as gs

from exporter.artefact import Artefact
from exporter.lowering.graph import markers
from exporter.lowering.markers import (
    ATTENTION,
    CDF_RETAIN,
    CDF_RETAIN_PADDED,
    CLASS_ROW,
    DISSIMILARITY,
    KEEP_TOP_K,
    MERGE_INTO,
    MERGE_TOKENS,
    PAIR_TOKENS,
    RECEIVED,
    TAKE_TOKENS,
)
from exporter.tensor_names import (
    POOLING,
    class_row_name,
    context_name,
    count_name,
    factor_name,
    into_name,
    keep_name,
    sizes_name,
    tokens_name,
)

__all__ = ["name_decisions"]

RETENTIONS = (KEEP_TOP_K, CDF_RETAIN, CDF_RETAIN_PADDED)
FACTORS = (RECEIVED, DISSIMILARITY)


def name_decisions(graph: gs.Graph, artefact: Artefact) -> int:
    """Name `keep_NN`, `tokens_NN` and `class_row_NN` or `factor_NN` in pruning layers, `context_NN` with attention.

    NN counts from 1. a-STAR adds `count_NN`; merging adds `into_NN` and `sizes_NN`. Packed tokens have no
    `tokens_NN`: they are not in a grid. The attention of a head that pools by it is `pooling`.
    The variants for `check` and the verification after export find layers by these names.
    """
    pruning = artefact.schedule.pruning_layers
    # A scorer without an intra-layer score reads no class row, and the exporter drops nodes without a reader.
    scored = pruning if markers(graph, CLASS_ROW) else ()
    taken = pruning if markers(graph, TAKE_TOKENS) else ()
    merged = pruning if markers(graph, MERGE_TOKENS) else ()
    paired = pruning if markers(graph, PAIR_TOKENS) else ()
    kept: list[tuple[str, ...]] = [(keep_name(layer), count_name(layer)) for layer in pruning]
    attentions: list[tuple[str, ...]] = [(context_name(layer),) for layer in artefact.spec.attention_layers]
    if artefact.spec.probe_rows:
        attentions.append((POOLING,))
    names: dict[str, list[tuple[str, ...]]] = {
        **{kind: kept for kind in RETENTIONS if markers(graph, kind)},
        TAKE_TOKENS: [(tokens_name(layer),) for layer in taken],
        MERGE_INTO: [(into_name(layer),) for layer in merged if not paired],
        PAIR_TOKENS: [(keep_name(layer), into_name(layer)) for layer in paired],
        MERGE_TOKENS: [(tokens_name(layer), sizes_name(layer)) for layer in merged],
        CLASS_ROW: [(class_row_name(layer),) for layer in scored],
        **{kind: [(factor_name(layer),) for layer in pruning] for kind in FACTORS if markers(graph, kind)},
        ATTENTION: attentions,
    }
    for kind, wanted in names.items():
        for node, outputs in zip(markers(graph, kind), wanted, strict=True):
            for output, name in zip(node.outputs, outputs, strict=False):  # further outputs keep their names
                _apart(graph, output)
                output.name = name
            node.name = f"{kind}/{outputs[0]}"
    return sum(map(len, names.values()))


def _apart(graph: gs.Graph, tensor: gs.Variable) -> None:
    """Keep a decision's name as a model output: an Identity writes the output."""
    for place, output in enumerate(graph.outputs):
        if output is tensor:
            given = gs.Variable(tensor.name, tensor.dtype, tensor.shape)
            graph.nodes.append(gs.Node("Identity", f"{tensor.name}/given", {}, [tensor], [given]))
            graph.outputs[place] = given
