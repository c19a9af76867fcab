"""Which nodes choose patches: their names, and all nodes behind them, which a lower precision must not change."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

import onnx_graphsurgeon as gs

from exporter.core.base.artefact import Artefact
from exporter.core.base.tensor_names import (
    POOLING,
    class_row_name,
    context_name,
    count_name,
    factor_name,
    into_name,
    keep_name,
    ranked_name,
    shares_name,
    sizes_name,
    stays_name,
    tokens_name,
)
from exporter.core.base.vocabulary import Layout
from exporter.core.lower.graph import Builder, markers, producer
from exporter.core.lower.markers import (
    ATTENTION,
    ATTENTION_RECEIVED,
    CLASS_ROW,
    DISSIMILARITY,
    KEEP_TOP_K,
    MERGE_INTO,
    MERGE_TOKENS,
    PAIR_TOKENS,
    TAKE_TOKENS,
)
from exporter.core.prune.ops.onnx_functions import CDF_RETAIN, CDF_RETAIN_PADDED
from exporter.core.schedule import methods
from exporter.core.schedule.methods import reduction_named, scorer_named

# What a pruning layer may have, beside its attention.
OF_PRUNING = (
    KEEP_TOP_K,
    CDF_RETAIN,
    CDF_RETAIN_PADDED,
    TAKE_TOKENS,
    PAIR_TOKENS,
    MERGE_INTO,
    MERGE_TOKENS,
    CLASS_ROW,
    ATTENTION_RECEIVED,
    DISSIMILARITY,
)
# The marker of an intra-layer factor, and the name of its result. The probe's attention needs none.
FACTOR_MARKERS = {
    methods.CLASS.name: (CLASS_ROW, class_row_name),
    methods.RECEIVED.name: (ATTENTION_RECEIVED, factor_name),
    methods.SIMILARITY.name: (DISSIMILARITY, factor_name),
}


def name_decisions(graph: gs.Graph, artefact: Artefact) -> int:
    """Name `keep_NN`, `tokens_NN` and `class_row_NN` or `factor_NN` in pruning layers, `context_NN` with attention.

    NN counts from 1. a-STAR adds `count_NN`; merging adds `into_NN` and `sizes_NN`. Packed tokens have no
    `tokens_NN`: they are not in a grid. The attention of a head that pools by it is `pooling`.
    The variants for `check` and the verification after export find layers by these names.
    """
    changed = 0
    for kind, wanted in _names(artefact).items():
        nodes = markers(graph, kind)
        if len(nodes) != len(wanted):
            raise RuntimeError(f"{len(nodes)} nodes {kind}, not {len(wanted)}")
        for node, names in zip(nodes, wanted, strict=True):
            # Further outputs keep their names.
            for output, name in zip(node.outputs, names, strict=False):
                _apart(graph, output)
                output.name = name
            node.name = f"{kind}/{names[0]}"
            changed += 1
    return changed


def _names(artefact: Artefact) -> dict[str, list[tuple[str, ...]]]:
    """Return what the outputs of each marker are called, layer by layer."""
    spec = artefact.spec
    schedule = artefact.schedule
    scorer = scorer_named(schedule.scorer)
    merges = reduction_named(schedule.reduce).merges

    def of_layers(*namers: Callable[[int], str]) -> list[tuple[str, ...]]:
        return [
            tuple(name(layer) for name in namers) for layer in schedule.pruning_layers
        ]

    names: dict[str, list[tuple[str, ...]]] = {kind: [] for kind in OF_PRUNING}
    if scorer.pairs:
        names[PAIR_TOKENS] = of_layers(keep_name, into_name)
    else:
        names[_retention(artefact)] = of_layers(keep_name, count_name)
        factor = scorer.factor_of(spec).name
        # The exporter drops nodes without a reader, like a factor whose weight is 0.
        if factor in FACTOR_MARKERS and scorer.weight(schedule.alpha) > 0:
            kind, name = FACTOR_MARKERS[factor]
            names[kind] = of_layers(name)
    if merges:
        names[MERGE_TOKENS] = of_layers(tokens_name, sizes_name)
        names[MERGE_INTO] = [] if scorer.pairs else of_layers(into_name)
    elif not (schedule.adaptive and artefact.layout == Layout.PACKED):
        names[TAKE_TOKENS] = of_layers(tokens_name)
    pooling = [(POOLING,)] if spec.probe_rows else []
    names[ATTENTION] = [
        *((context_name(layer),) for layer in spec.attention_layers),
        *pooling,
    ]
    return names


def _retention(artefact: Artefact) -> str:
    """Return the marker that keeps patches by their score."""
    if not artefact.schedule.adaptive:
        return KEEP_TOP_K
    return CDF_RETAIN_PADDED if artefact.layout == Layout.PADDED else CDF_RETAIN


def _apart(graph: gs.Graph, tensor: gs.Variable) -> None:
    """Keep a decision's name as a model output: an Identity writes the output."""
    for place, output in enumerate(graph.outputs):
        if output is tensor:
            result = gs.Variable(tensor.name, tensor.dtype, tensor.shape)
            name = f"{tensor.name}/given"
            graph.nodes.append(gs.Node("Identity", name, {}, [tensor], [result]))
            graph.outputs[place] = result


# The name of the node that computes a patch's mean key.
MEAN_KEY = "mean_key"
# The name of what a class row is the sum of, where it is no matrix product.
BY_CHANNEL = "by_channel"

# Lower bound of a squared length: a key of zeros has no direction.
SHORTEST = 1e-24


def write_directions(op: Builder, key: gs.Variable, heads: int) -> gs.Variable:
    """Write the mean of the keys over heads, divided by its length: [batch, tokens, head_dim].

    `key` is [batch, heads, tokens, head_dim], or [batch, tokens, channels] as a projection gives it.
    """
    mean = write_mean_key(op, key, heads)
    return op.Div(mean, write_length(op, mean), name="directions")


def write_length(op: Builder, vectors: gs.Variable) -> gs.Variable:
    """Write the length of each vector of [batch, tokens, channels]: [batch, tokens, 1]."""
    squared = op.ReduceSum(op.Mul(vectors, vectors), [2], keepdims=1)
    return op.Sqrt(op.Max(squared, SHORTEST))


def write_mean_key(op: Builder, key: gs.Variable, heads: int) -> gs.Variable:
    """Write the mean of the keys over heads: [batch, tokens, head_dim]; see `write_directions`."""
    if len(key.shape) == 3:
        key = op.Reshape(key, [0, 0, heads, -1], name="heads")
        return op.ReduceMean(key, [2], keepdims=0, name=MEAN_KEY)
    if key.shape[1] == 1:
        heads_of = producer(key, "Unsqueeze")
        if heads_of is not None:
            return op.Identity(heads_of.inputs[0], name=MEAN_KEY)
        return op.Squeeze(key, [1], name=MEAN_KEY)
    return op.ReduceMean(key, [1], keepdims=0, name=MEAN_KEY)


def mean_key_channels(key: gs.Variable, heads: int) -> int:
    """Return how many channels a mean key has."""
    channels = int(key.shape[-1])
    by_head = len(key.shape) == 4
    return channels if by_head else channels // heads


# A walk back ends at a product, whose inputs are activations, and at a size, which holds no tensor values.
PRODUCTS = frozenset({"MatMul", "Gemm", "Attention"})
SIZES = frozenset({"Shape", "Size"})


def scoring_nodes(graph: gs.Graph, artefact: Artefact) -> frozenset[int]:
    """Return the nodes from the product by which patches are scored, included, to the survivors, each by its `id`.

    Where no product scores them, from the mean of their keys. Where tokens merge, also those from the mean of their
    keys to each patch's survivor, and to the weights of the mean.
    """
    tensors = graph.tensors()
    schedule = artefact.schedule
    merges = reduction_named(schedule.reduce).merges
    keeps = []
    counts = []
    joins = []
    ends = []
    for layer in schedule.pruning_layers:
        keeps.append(
            _tensor(tensors, keep_name(layer), ranked_name(layer), stays_name(layer))
        )
        if schedule.adaptive:
            counts.append(_tensor(tensors, count_name(layer)))
        if merges:
            joins.append(_tensor(tensors, into_name(layer)))
            joins.append(_tensor(tensors, shares_name(layer)))
            ends.append(_tensor(tensors, f"{into_name(layer)}/{MEAN_KEY}"))
        mean_key = f"{factor_name(layer)}/{MEAN_KEY}"
        by_channel = f"{class_row_name(layer)}/{BY_CHANNEL}"
        ends += [tensors[name] for name in (mean_key, by_channel) if name in tensors]
    scored = behind([*keeps, *counts], ends)
    # The product of merging is one of keys, behind their mean: it is no end.
    joined = behind(joins, [*ends, *keeps], SIZES)
    return frozenset(id(node) for nodes in (scored, joined) for node in nodes)


def behind(
    tensors: Iterable[gs.Tensor],
    ends: Iterable[gs.Tensor] = (),
    operators: Collection[str] = PRODUCTS | SIZES,
) -> Iterator[gs.Node]:
    """Yield the nodes that produce the tensors, back to the nearest `operators` and to `ends`, these included.

    Nodes are told apart by identity: a name may be missing, and GraphSurgeon compares nodes by content.
    """
    unvisited = list(tensors)
    seen = set()
    last = {id(node) for tensor in ends for node in tensor.inputs}
    while unvisited:
        for node in unvisited.pop().inputs:
            if id(node) in seen:
                continue
            seen.add(id(node))
            yield node
            if node.op not in operators and id(node) not in last:
                unvisited += node.inputs


def _tensor(tensors: Mapping[str, gs.Tensor], *names: str) -> gs.Tensor:
    """Return the first of these tensors that there is."""
    for name in names:
        if name in tensors:
            return tensors[name]
    raise RuntimeError(f"no {' or '.join(names)} in the graph of a model that needs it")
