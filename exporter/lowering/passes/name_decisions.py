"""Give each layer's survivors, gathered tokens and attention outputs their final names."""

from collections.abc import Callable

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
from exporter.schedule import methods
from exporter.schedule.methods import reduction_named, scorer_named
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
from exporter.vocabulary import Layout

__all__ = ["name_decisions"]

# What a pruning layer may have, beside its attention.
OF_PRUNING = (
    *(KEEP_TOP_K, CDF_RETAIN, CDF_RETAIN_PADDED, TAKE_TOKENS, PAIR_TOKENS, MERGE_INTO, MERGE_TOKENS),
    *(CLASS_ROW, RECEIVED, DISSIMILARITY),
)
# The marker of an intra-layer factor, and the name of its result. The probe's attention needs none.
FACTORS = {
    methods.CLASS.name: (CLASS_ROW, class_row_name),
    methods.RECEIVED.name: (RECEIVED, factor_name),
    methods.SIMILARITY.name: (DISSIMILARITY, factor_name),
}


def name_decisions(graph: gs.Graph, artefact: Artefact) -> int:
    """Name `keep_NN`, `tokens_NN` and `class_row_NN` or `factor_NN` in pruning layers, `context_NN` with attention.

    NN counts from 1. a-STAR adds `count_NN`; merging adds `into_NN` and `sizes_NN`. Packed tokens have no
    `tokens_NN`: they are not in a grid. The attention of a head that pools by it is `pooling`.
    The variants for `check` and the verification after export find layers by these names.

    Raises:
        RuntimeError: The graph has more or fewer markers of a kind than its schedule needs.
    """
    names = _names(artefact)
    for kind, wanted in names.items():
        found = markers(graph, kind)
        if len(found) != len(wanted):
            raise RuntimeError(f"{len(found)} nodes {kind}, not {len(wanted)}")
        for node, outputs in zip(found, wanted, strict=True):
            for output, name in zip(node.outputs, outputs, strict=False):  # further outputs keep their names
                _apart(graph, output)
                output.name = name
            node.name = f"{kind}/{outputs[0]}"
    return sum(map(len, names.values()))


def _names(artefact: Artefact) -> dict[str, list[tuple[str, ...]]]:
    """Return what the outputs of each marker are called, layer by layer."""
    spec, schedule = artefact.spec, artefact.schedule
    scorer, merges = scorer_named(schedule.scorer), reduction_named(schedule.reduce).merges

    def of_layers(*names: Callable[[int], str]) -> list[tuple[str, ...]]:
        return [tuple(name(layer) for name in names) for layer in schedule.pruning_layers]

    found: dict[str, list[tuple[str, ...]]] = {kind: [] for kind in OF_PRUNING}
    if scorer.pairs:
        found[PAIR_TOKENS] = of_layers(keep_name, into_name)
    else:
        found[_retention(artefact)] = of_layers(keep_name, count_name)
        factor = scorer.factor_of(spec).name
        # The exporter drops nodes without a reader, like a factor whose weight is 0.
        if factor in FACTORS and scorer.weight(schedule.alpha) > 0:
            kind, name = FACTORS[factor]
            found[kind] = of_layers(name)
    if merges:
        found[MERGE_TOKENS] = of_layers(tokens_name, sizes_name)
        found[MERGE_INTO] = [] if scorer.pairs else of_layers(into_name)
    elif not (schedule.adaptive and artefact.layout == Layout.PACKED):
        found[TAKE_TOKENS] = of_layers(tokens_name)
    pooling = [(POOLING,)] if spec.probe_rows else []
    found[ATTENTION] = [*((context_name(layer),) for layer in spec.attention_layers), *pooling]
    return found


def _retention(artefact: Artefact) -> str:
    """Return the marker that keeps patches by their score."""
    if not artefact.schedule.adaptive:
        return KEEP_TOP_K
    return CDF_RETAIN_PADDED if artefact.layout == Layout.PADDED else CDF_RETAIN


def _apart(graph: gs.Graph, tensor: gs.Variable) -> None:
    """Keep a decision's name as a model output: an Identity writes the output."""
    for place, output in enumerate(graph.outputs):
        if output is tensor:
            given = gs.Variable(tensor.name, tensor.dtype, tensor.shape)
            graph.nodes.append(gs.Node("Identity", f"{tensor.name}/given", {}, [tensor], [given]))
            graph.outputs[place] = given
