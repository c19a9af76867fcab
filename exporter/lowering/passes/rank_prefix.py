"""Rank prefix tokens before every patch, so that the ranking directly gives the rows to gather."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx_graphsurgeon as gs

from exporter.artefact import Artefact
from exporter.lowering.graph import markers, producer
from exporter.lowering.markers import KEEP_TOP_K, TAKE_TOKENS
from exporter.tensor_names import ranked_name
from exporter.vocabulary import OutputKind

__all__ = ["rank_prefix"]

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
    prefix, layers = artefact.spec.num_prefix_tokens, artefact.schedule.pruning_layers
    rankings = [each for each in map(_ranking, markers(graph, KEEP_TOP_K)) if each is not None]
    lookups = [each.lookup for each in rankings if each.lookup is not None]
    kinds = {output.kind for output in artefact.spec.outputs}
    gives_tokens = bool(kinds & {OutputKind.TOKENS, OutputKind.GRID})
    counts_tokens = artefact.schedule.query_stride > 1
    if not prefix or gives_tokens or counts_tokens or len(rankings) < len(layers):
        return 0
    if not all(_only_takes(each.keep, lookups) for each in rankings):
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
    return Ranking(keep, weigh, cut, lookup) if lookup is None or lookup.op == "Gather" else None


def _only_takes(keep: gs.Node, lookups: list[gs.Node]) -> bool:
    """Whether only gathers and score lookups read the survivors and the positions computed from them."""
    for reader in keep.outputs[0].outputs:
        taken = reader.outputs[0].outputs if reader.op == "GatherElements" else [reader]
        for each in taken:
            known = each.op in (TAKE_TOKENS, "GatherElements") or any(each is lookup for lookup in lookups)
            if not known:
                return False
    return True


def _widen(ranking: Ranking, prefix: int) -> None:
    weigh, lookup = ranking.weigh, ranking.lookup
    node, slot = (weigh, 1) if lookup is None else (lookup, 0)
    table = node.inputs[slot]
    values = np.concatenate([np.full(prefix, LARGEST), table.values]).astype(np.float32)
    node.inputs[slot] = gs.Constant(f"{table.name}/{ranking.keep.outputs[0].name}", values)
    for tensor in _between(ranking):
        if tensor.shape is not None:
            tensor.shape = [tensor.shape[0], tensor.shape[1] + prefix]
    for reader in list(ranking.cut.outputs[0].outputs):
        reader.inputs[0] = ranking.cut.inputs[0]
    ranking.keep.attrs["k"] += prefix
    for reader in ranking.keep.outputs[0].outputs:
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
    for reader in ranking.keep.outputs[0].outputs:
        if reader.op == "GatherElements" and reader.inputs[1] is ranking.keep.outputs[0]:
            yield from reader.outputs
