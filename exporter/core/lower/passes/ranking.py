"""The scores that patches are ranked by, and the ranking itself."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from exporter.core.base.artefact import Artefact
from exporter.core.base.tensor_names import ranked_name
from exporter.core.base.vocabulary import OutputKind
from exporter.core.lower.decisions import write_directions
from exporter.core.lower.graph import END, Builder, expand, markers, nodes_of, producer
from exporter.core.lower.markers import (
    ATTENTION_RECEIVED,
    DISSIMILARITY,
    KEEP_TOP_K,
    TAKE_TOKENS,
)
from exporter.core.lower.passes.projections import TURNED
from exporter.core.prune.scores import SCORE_FLOOR

# Below any finite bias.
LOWEST = float(np.finfo(np.float32).min)


def expand_factors(graph: gs.Graph, artefact: Artefact) -> int:
    """Expand Received to a product and its softmax's mean, Dissimilarity to the cosine to the mean direction.

    Sums over patches and channels are ReduceSum: `core.lower.decisions` walks back to the first product, and
    keeps all behind it fp32.
    """
    dissimilarity = partial(_expand_dissimilarity, heads=artefact.spec.num_heads)
    received = _expand_received
    return expand(graph, {ATTENTION_RECEIVED: received, DISSIMILARITY: dissimilarity})


def _expand_received(op: Builder, node: gs.Node) -> gs.Variable:
    """Write the mean over heads and queries of softmax(query · scale · keyᵀ + bias); padding asks nothing."""
    query, key, *biases = node.inputs
    stride = node.attrs["stride"]
    if stride > 1:
        query = op.Slice(query, [0], [END], [2], [stride], name="take_queries")
    scaled = op.Mul(query, float(node.attrs["scale"]), name="scale_query")
    keys = op.Transpose(key, perm=TURNED, name="turn_key")
    logits = op.MatMul(scaled, keys, name="query_keys")
    if not biases:
        weights = op.Softmax(logits, axis=-1, name="softmax")
        return op.ReduceMean(weights, [1, 2], keepdims=0, name="mean")
    (bias,) = biases
    logits = op.Add(logits, op.Unsqueeze(bias, [1, 2]), name="add_bias")
    softmax = op.Softmax(logits, axis=-1, name="softmax")
    weights = op.ReduceMean(softmax, [1], keepdims=0, name="over_heads")
    is_token = op.Greater(bias, LOWEST)
    asking = op.Cast(is_token, to=onnx.TensorProto.FLOAT, name="asking")
    if stride > 1:
        asking = op.Slice(asking, [0], [END], [1], [stride])
    shares = op.Div(asking, op.ReduceSum(asking, [1], keepdims=1), name="shares")
    shared = op.Mul(weights, op.Unsqueeze(shares, [2]), name="share")
    return op.ReduceSum(shared, [1], keepdims=0, name="over_queries")


def _expand_dissimilarity(op: Builder, node: gs.Node, heads: int) -> gs.Variable:
    """Write 1 − direction · mean direction of the patches; padding has no part in the mean."""
    key, *live = node.inputs
    prefix = node.attrs["num_prefix_tokens"]
    tokens = write_directions(op, key, heads)
    patches = op.Slice(tokens, [prefix], [END], [1], name="patches")
    if not live:
        mean = op.ReduceMean(patches, [1], keepdims=1, name="mean")
    else:
        marked = op.Cast(*live, to=onnx.TensorProto.FLOAT, name="own")
        marks = op.Slice(marked, [prefix], [END], [1])
        shares = op.Div(marks, op.ReduceSum(marks, [1], keepdims=1), name="shares")
        weighed = op.Mul(patches, op.Unsqueeze(shares, [2]))
        mean = op.ReduceSum(weighed, [1], keepdims=1, name="mean")
    cosine = op.ReduceSum(op.Mul(patches, mean), [2], keepdims=0, name="cosine")
    return op.Sub(1.0, cosine, name="dissimilarity")


# In this range, a weight times any score from the floor to 1 is a normal float32, so that none is lost, and it is
# less than the score that `rank_prefix` gives a prefix token.
LEAST_WEIGHT = float(np.finfo(np.float32).tiny) / SCORE_FLOOR
LARGEST_WEIGHT = 2.0**27


def shorten_scores(graph: gs.Graph, _: Artefact) -> int:
    """Rewrite alpha · log(intra) + table into intra · exp(table / alpha), which has the same order.

    1. The table is computed ahead of time, in float64.
    2. Gather looks it up by position; the exporter's GatherND needs a further axis. Where every patch is still in
       its place, the table is used directly.
    3. The largest weight is the largest allowed, since only the order counts. Where the smallest is then still too
       small for float32, the score stays a sum, log(intra) + table / alpha.

    A score of another form, with a mask or without a table, is left as it is.
    """
    changed = 0
    for node in markers(graph, KEEP_TOP_K):
        add = producer(node.inputs[0], "Add")
        if add is None:
            continue
        weighed = producer(add.inputs[0], "Mul")
        lookup = producer(add.inputs[1])
        if weighed is None or lookup is None:
            continue
        if _is_weighed_log(weighed) and _is_lookup(lookup):
            _shorten(add, weighed, lookup)
            changed += 1
    return changed


def _shorten(add: gs.Node, weighed: gs.Node, lookup: gs.Node) -> None:
    log, alpha = weighed.inputs
    table = lookup.inputs[0].values.astype(np.float64) / alpha.values
    weighed.inputs.clear()
    add.inputs[0] = log
    weights = LARGEST_WEIGHT * np.exp(table - table.max())
    if weights.min() >= LEAST_WEIGHT:
        add.op = "Mul"
        add.inputs[0] = log.inputs[0].inputs[0]
        table = weights
    table = gs.Constant(f"{add.outputs[0].name}/table", table.astype(np.float32))
    if lookup.op == "Expand":
        add.inputs[1] = table
        return
    column = lookup.inputs[1]
    positions = column.inputs[0].inputs[0]
    lookup.op = "Gather"
    lookup.attrs = {"axis": 0}
    lookup.inputs = [table, positions]


def _is_weighed_log(node: gs.Node) -> bool:
    """Whether the node is a logarithm times one positive number, with one reader."""
    log, alpha = node.inputs
    if len(node.outputs[0].outputs) != 1 or not isinstance(alpha, gs.Constant):
        return False
    is_positive = bool(alpha.values.size == 1 and alpha.values > 0)
    return producer(log, "Log") is not None and is_positive


def _is_lookup(node: gs.Node) -> bool:
    """Whether the node is a constant row of scores, fixed or looked up by position, with one reader."""
    if node.op not in ("Expand", "GatherND"):
        return False
    table, index = node.inputs
    if not isinstance(table, gs.Constant) or table.values.ndim != 1:
        return False
    if len(node.outputs[0].outputs) != 1:
        return False
    return node.op == "Expand" or producer(index, "Unsqueeze") is not None


LARGEST = np.finfo(np.float32).max

# The operator that weights a score, and the operators between it and the class row's mean, last to first.
WEIGHED = {"Mul": ("Clip", "Slice"), "Add": ("Log", "Clip", "Slice")}


@dataclass(frozen=True)
class Ranking:
    """One layer's score, and the top-k that ranks by it.

    `cut` drops the prefix columns of the class row's mean. `weigh` combines the rest, after floor and logarithm,
    with the inter-layer scores: a constant row, or a `lookup` by position.
    """

    keep: gs.Node
    weigh: gs.Node
    cut: gs.Node
    lookup: gs.Node | None


def rank_prefix(graph: gs.Graph, artefact: Artefact) -> int:
    """Score all tokens, the prefix tokens higher than any patch, and keep `num_prefix_tokens` more.

    1. The top-k then gives `keep_NN/tokens`, rows of tokens: no node has to remove the prefix from the scores, to
       shift the survivors past it, or to concatenate it with them.
    2. Positions count the prefix tokens as well, and so do the tables looked up by position.
    3. Scores have a positive floor, so float32's largest number ranks a prefix token above every patch, whether it
       is added to a logarithm or multiplied.

    The pass changes all layers or none. It leaves a model as it is where scores have another form, or where other
    nodes read survivors or their positions, as with rotary embeddings or with tokens as an output; or where a
    stride of queries counts tokens in their order.
    """
    prefix = artefact.spec.num_prefix_tokens
    layers = artefact.schedule.pruning_layers
    found_rankings = map(_ranking, markers(graph, KEEP_TOP_K))
    rankings = [ranking for ranking in found_rankings if ranking is not None]
    lookups = {id(ranking.lookup) for ranking in rankings if ranking.lookup is not None}
    kinds = {output.kind for output in artefact.spec.outputs}
    gives_tokens = bool(kinds & {OutputKind.TOKENS, OutputKind.GRID})
    counts_tokens = artefact.schedule.query_stride > 1
    if not prefix or gives_tokens or counts_tokens or len(rankings) < len(layers):
        return 0
    if not all(_only_takes(ranking.keep, lookups) for ranking in rankings):
        return 0
    for layer, ranking in zip(layers, rankings, strict=True):
        _widen(ranking, prefix)
        ranking.keep.outputs[0].name = ranked_name(layer)
    return len(layers)


def _ranking(keep: gs.Node) -> Ranking | None:
    """Return the score that a top-k ranks by; None for a score of another form."""
    weigh = producer(keep.inputs[0])
    if weigh is None or weigh.op not in WEIGHED:
        return None
    cut = weigh
    for op in WEIGHED[weigh.op]:
        before = producer(cut.inputs[0], op)
        if before is None:
            return None
        cut = before
    lookup = producer(weigh.inputs[1])
    table = weigh.inputs[1] if lookup is None else lookup.inputs[0]
    if not isinstance(table, gs.Constant) or table.values.ndim != 1:
        return None
    if lookup is None or lookup.op == "Gather":
        return Ranking(keep, weigh, cut, lookup)
    return None


def _only_takes(keep: gs.Node, lookups: set[int]) -> bool:
    """Whether only gathers and score lookups read the survivors and the positions computed from them."""
    for reader in keep.outputs[0].outputs:
        gathers_positions = reader.op == "GatherElements"
        takers = reader.outputs[0].outputs if gathers_positions else [reader]
        for taker in takers:
            known = taker.op in (TAKE_TOKENS, "GatherElements") or id(taker) in lookups
            if not known:
                return False
    return True


def _widen(ranking: Ranking, prefix: int) -> None:
    """Let a layer score its prefix tokens too, and keep as many more."""
    survivors = ranking.keep.outputs[0]
    lookup = ranking.lookup
    node, slot = (ranking.weigh, 1) if lookup is None else (lookup, 0)
    table = node.inputs[slot]
    values = np.concatenate([np.full(prefix, LARGEST), table.values])
    name = f"{table.name}/{survivors.name}"
    node.inputs[slot] = gs.Constant(name, values.astype(np.float32))
    for tensor in _between(ranking):
        if tensor.shape is not None:
            tensor.shape = [tensor.shape[0], tensor.shape[1] + prefix]
    for reader in list(ranking.cut.outputs[0].outputs):
        reader.inputs[0] = ranking.cut.inputs[0]
    ranking.keep.attrs["k"] += prefix
    for reader in survivors.outputs:
        if reader.op == TAKE_TOKENS:
            reader.attrs["num_prefix_tokens"] = 0


def _between(ranking: Ranking) -> Iterator[gs.Variable]:
    """Yield the tensors whose width counts patches, from after the cut to the survivors and their positions."""
    tensor = ranking.weigh.inputs[0]
    while tensor.inputs[0] is not ranking.cut:
        yield tensor
        tensor = tensor.inputs[0].inputs[0]
    yield from ranking.weigh.outputs
    yield from ranking.keep.outputs
    if ranking.lookup is not None:
        yield from ranking.lookup.outputs
    survivors = ranking.keep.outputs[0]
    for reader in survivors.outputs:
        if reader.op == "GatherElements" and reader.inputs[1] is survivors:
            yield from reader.outputs


def sort_once(graph: gs.Graph, artefact: Artefact) -> int:
    """Remove a TopK that only orders the indices of another, where all tokens are ranked, see `rank_prefix`.

    The class token comes out first, and the order of the others does not matter: attention and linear layers do not
    depend on it, and scores are looked up by position. Several prefix tokens would have to keep their order; both
    TopK stay then. Which of two equal scores at the cut survives is undefined from the second pruning layer on.
    """
    single = artefact.spec.num_prefix_tokens == 1
    ranked = {
        ranked_name(layer) for layer in artefact.schedule.pruning_layers if single
    }
    changed = 0
    for choosing, sorting in _sorted_twice(graph):
        survivors = sorting.outputs[0]
        if survivors.name in ranked:
            sorting.outputs.clear()
            choosing.outputs = [choosing.outputs[0], survivors]
            changed += 1
    return changed


def choose_unsorted(graph: gs.Graph, _: Artefact) -> int:
    """Let a TopK give its indices in any order where a second one orders them, and its values have no reader.

    With `sorted` = 0 ONNX Runtime selects in linear time, by value and then by index, so that the tie rule holds.
    TensorRT supports only sorted = 1, and OpenVINO is no faster.
    """
    pairs = _sorted_twice(graph)
    for choosing, _ in pairs:
        choosing.attrs["sorted"] = 0
    return len(pairs)


def _sorted_twice(graph: gs.Graph) -> list[tuple[gs.Node, gs.Node]]:
    """Return each TopK whose indices another TopK alone reads, with that one."""
    return [
        (node, node.outputs[1].outputs[0])
        for node in nodes_of(graph, "TopK")
        if _is_sorted_again(node)
    ]


def _is_sorted_again(node: gs.Node) -> bool:
    if not node.attrs.get("sorted", 1):
        return False
    values, indices = node.outputs
    return not values.outputs and [reader.op for reader in indices.outputs] == ["TopK"]
