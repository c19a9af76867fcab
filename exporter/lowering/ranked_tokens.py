"""Survivors as patches, in a graph that chooses among tokens and in any order: what `check` shows and forces.

Such a graph has `keep_NN/tokens` in the place of `keep_NN` in all its layers: rows of the tokens that reach the
layer, as they stand there, see `exporter.lowering.passes.rank_prefix`. Any other graph is left as it is.
"""

from collections.abc import Iterator

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from exporter.artefact import Artefact
from exporter.lowering.passes.expand_selection import behind_prefix, prefix_rows
from exporter.tensor_names import keep_name, ranked_name

__all__ = ["patches_for_tokens", "patches_from_tokens"]


def patches_from_tokens(graph: gs.Graph, artefact: Artefact) -> None:
    """Add `keep_NN` [batch, k]: ascending, counted within the patches that reached the layer.

    Where the patches of an image stand is followed from layer to layer, so that it is known how many of those that
    reached a layer stand before each survivor.
    """
    prefix = artefact.spec.num_prefix_tokens
    before: gs.Variable | None = None
    for layer, ranked in _ranked(graph, artefact):
        count = artefact.schedule.keep[layer - 1]
        where = ranked if before is None else _op(graph, "GatherElements", before, ranked, axis=1)
        rank = _op(graph, "TopK", where, [prefix + count], axis=1, largest=0)
        if before is not None:
            rank = _smaller(graph, before, rank)
        keep = _op(graph, "Sub", _op(graph, "Slice", rank, [prefix], [prefix + count], [1]), prefix)
        keep.name, keep.dtype, keep.shape = keep_name(layer), np.int64, ["batch", count]
        before = where
    graph.toposort()


def patches_for_tokens(graph: gs.Graph, artefact: Artefact) -> None:
    """Add `keep_NN`, which no node gives, and let all that read the layer's own choice read the tokens it means."""
    prefixes: gs.Variable | None = None
    for layer, ranked in _ranked(graph, artefact):
        readers = list(ranked.outputs)
        keep = gs.Variable(keep_name(layer), np.int64, ["batch", artefact.schedule.keep[layer - 1]])
        if prefixes is None:
            prefixes = prefix_rows(graph, readers[0], keep, artefact.spec.num_prefix_tokens)
        tokens = behind_prefix(graph, readers[0], keep, prefixes, artefact.spec.num_prefix_tokens)
        for reader in readers:
            reader.inputs = [tokens if each is ranked else each for each in reader.inputs]
    graph.toposort()


def _ranked(graph: gs.Graph, artefact: Artefact) -> Iterator[tuple[int, gs.Variable]]:
    """The 1-based pruning layers and what they choose, where that is tokens."""
    tensors = graph.tensors()
    layers = artefact.schedule.pruning_layers
    if ranked_name(layers[0]) in tensors:
        yield from ((layer, tensors[ranked_name(layer)]) for layer in layers)


def _smaller(graph: gs.Graph, numbers: gs.Variable, bounds: gs.Variable) -> gs.Variable:
    """How many of `numbers` [batch, n] are smaller than each of `bounds` [batch, k]."""
    smaller = _op(graph, "Less", _op(graph, "Unsqueeze", numbers, [1]), _op(graph, "Unsqueeze", bounds, [2]))
    counted = _op(graph, "Cast", smaller, to=onnx.TensorProto.INT64)
    return _op(graph, "ReduceSum", counted, [2], keepdims=0)


def _op(graph: gs.Graph, op: str, *inputs: gs.Variable | list[int] | int, **attrs: int) -> gs.Variable:
    """The first output of one more node."""
    names = [f"patches/{op}"] + ["patches/unread"] * (op == "TopK")
    return graph.layer(op=op, inputs=inputs, outputs=names, attrs=attrs)[0]
