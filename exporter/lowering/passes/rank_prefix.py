"""Prefix tokens rank before every patch, so that the ranking gives the rows to take as they are."""

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

# How a score is weighed, and what stands between that and the class row's mean, last to first.
WEIGHED = {"Mul": ("Clip", "Slice"), "Add": ("Log", "Clip", "Slice")}


@dataclass(frozen=True)
class Ranking:
    """One layer's score, and what ranks by it.

    `cut` drops the prefix columns of the class row's mean; `weigh` joins what is left of it, through floor and
    logarithm, with the inter-layer scores, a constant row or a `lookup` by position.
    """

    keep: gs.Node
    weigh: gs.Node
    cut: gs.Node
    lookup: gs.Node | None


def rank_prefix(graph: gs.Graph, artefact: Artefact) -> int:
    """Score all tokens, the prefix tokens higher than any patch can be, and keep as many more.

    1. What chooses then gives `keep_NN/tokens`, rows of tokens: no node has to cut the prefix off the scores, to
       count the survivors behind it, or to put it before them.
    2. Positions count the prefix tokens in, too, and so do the tables that are looked up by them.
    3. A floor holds scores above 0, so that one as high as float32 goes lifts a prefix token over every patch,
       added to a logarithm or multiplied.

    All layers or none: a model whose scores are of another make, or that reads survivors or their positions
    elsewhere, like one with rotary embeddings or one that gives its tokens, stays as it is.
    """
    prefix, layers = artefact.spec.num_prefix_tokens, artefact.schedule.pruning_layers
    rankings = [each for each in map(_ranking, markers(graph, KEEP_TOP_K)) if each is not None]
    lookups = [each.lookup for each in rankings if each.lookup is not None]
    gives_tokens = any(output.kind == OutputKind.TOKENS for output in artefact.spec.outputs)
    if not prefix or gives_tokens or len(rankings) < len(layers):
        return 0
    if not all(_only_takes(each.keep, lookups) for each in rankings):
        return 0
    for layer, ranking in zip(layers, rankings, strict=True):
        _widen(ranking, prefix)
        ranking.keep.outputs[0].name = ranked_name(layer)
    return len(layers)


def _ranking(keep: gs.Node) -> Ranking | None:
    """What a top-k ranks by, None for a score of another make."""
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
    """Whether survivors and positions made of them are read by nothing but gathers and the lookups of scores."""
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
    """The tensors whose width counts patches, from what follows the cut to the survivors and their positions."""
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
