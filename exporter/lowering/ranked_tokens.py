"""Translate between patches and ranked tokens, for the variants of a graph that chooses among tokens in any order.

All layers of such a graph have `keep_NN/tokens` instead of `keep_NN`: rows of the tokens that reach the layer, in
their order there, see `exporter.lowering.passes.rank_prefix`. Any other graph is left as it is.
"""

from collections.abc import Iterator

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from exporter.artefact import Artefact
from exporter.lowering.builder import Builder
from exporter.lowering.graph import rewire, sort_nodes
from exporter.lowering.passes.expand_selection import behind_prefix, prefix_rows
from exporter.tensor_names import keep_name, ranked_name, rows_of

__all__ = ["patches_for_tokens", "patches_from_tokens"]


def patches_from_tokens(graph: gs.Graph, artefact: Artefact) -> None:
    """Add `keep_NN` [batch, k]: ascending, counted within the patches that reached the layer.

    The patches' positions are followed from layer to layer, to count the patches that reached a layer and precede
    each survivor.
    """
    prefix, op = artefact.spec.num_prefix_tokens, Builder(graph, prefix="patches")
    before: gs.Variable | None = None
    for layer, ranked in _ranked(graph, artefact):
        count = artefact.schedule.keep[layer - 1]
        where = ranked if before is None else op.GatherElements(before, ranked, axis=1)
        outs = keep_name(layer) + "/ascending", keep_name(layer) + "/unread"
        rank, _ = op.several("TopK", where, [prefix + count], outs=outs, axis=1, largest=0)
        if before is not None:
            rank = _smaller(op, before, rank)
        patches = op.Slice(rank, [prefix], [prefix + count], [1])
        op.Sub(patches, prefix, out=keep_name(layer), shape=["batch", count])
        before = where
    sort_nodes(graph)


def patches_for_tokens(graph: gs.Graph, artefact: Artefact) -> None:
    """Add `keep_NN` without a producer, and connect the readers of the layer's choice to its tokens."""
    prefix = artefact.spec.num_prefix_tokens
    prefixes: gs.Variable | None = None
    for layer, ranked in _ranked(graph, artefact):
        readers = list(ranked.outputs)
        keep = gs.Variable(keep_name(layer), np.int64, ["batch", artefact.schedule.keep[layer - 1]])
        if prefixes is None:
            prefixes = prefix_rows(Builder(graph, readers[0], prefix="prefix"), keep, prefix)
        op = Builder(graph, readers[0], prefix=rows_of(keep.name))
        rewire(ranked, behind_prefix(op, keep, prefixes, prefix))
    sort_nodes(graph)


def _ranked(graph: gs.Graph, artefact: Artefact) -> Iterator[tuple[int, gs.Variable]]:
    """Yield the 1-based pruning layers and their choices, where these are tokens."""
    tensors = graph.tensors()
    layers = artefact.schedule.pruning_layers
    if ranked_name(layers[0]) in tensors:
        yield from ((layer, tensors[ranked_name(layer)]) for layer in layers)


def _smaller(op: Builder, numbers: gs.Variable, bounds: gs.Variable) -> gs.Variable:
    """Count how many of `numbers` [batch, n] are smaller than each of `bounds` [batch, k]."""
    smaller = op.Less(op.Unsqueeze(numbers, [1]), op.Unsqueeze(bounds, [2]))
    return op.ReduceSum(op.Cast(smaller, to=onnx.TensorProto.INT64), [2], keepdims=0)
