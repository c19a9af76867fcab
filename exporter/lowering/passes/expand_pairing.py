"""Expand ToMe's pairs into standard operators: who stays, and whom the others join."""

import numpy as np
import onnx_graphsurgeon as gs

from exporter.artefact import Artefact
from exporter.lowering.builder import Builder
from exporter.lowering.graph import markers, replace
from exporter.lowering.key_directions import write_directions
from exporter.lowering.markers import DOMAIN, KEEP_TOP_K, PAIR_TOKENS
from exporter.ops.pair_sets import joined_patches
from exporter.tensor_names import into_name

__all__ = ["expand_pairing"]


def expand_pairing(graph: gs.Graph, artefact: Artefact) -> int:
    """Expand PairTokens to slices, one product, and a top-k.

    1. Sets that alternate are slices; where the second has fewer tokens, the first is gathered.
    2. Who stays is chosen by KeepTopK from the negative largest cosine, with its tie rule.
    3. The mean keys are named after `into_NN`: `exporter.lowering.scoring` keeps all from them on fp32.
    """
    paired = markers(graph, PAIR_TOKENS)
    for layer, node in zip(artefact.schedule.pruning_layers if paired else (), paired, strict=True):
        _expand(graph, node, into_name(layer), artefact.spec.num_heads)
    return len(paired)


def _expand(graph: gs.Graph, node: gs.Node, prefix: str, heads: int) -> None:
    (key,), before, kept = node.inputs, node.attrs["num_prefix_tokens"], node.attrs["kept"]
    patches = int(key.shape[-2]) - before
    second = joined_patches(patches, kept, before)
    joined, joins = np.array(second), ~np.isin(np.arange(patches), second)
    joining = np.flatnonzero(joins)
    op = Builder(graph, node, prefix=prefix)
    directions = write_directions(op, key, heads)
    others = op.Slice(
        directions, [before + second.start], [before + patches], [1], [second.step], name="joined"
    )
    if second.step == 2:
        start = before + 1 - second.start
        ones = op.Slice(directions, [start], [before + patches], [1], [2], name="joining")
    else:
        ones = op.Gather(directions, before + joining, axis=1, name="joining")
    cosine = op.MatMul(ones, op.Transpose(others, perm=[0, 2, 1]), name="cosine")
    batch = op.Shape(cosine, start=0, end=1, name="batch")
    keep = op.Expand(joined[None], op.Concat(batch, [len(joined)], axis=0), name="all_joined")
    staying = kept - len(joined)
    if staying:
        stay = _staying(op, cosine, [key.shape[0], len(joining)], staying)
        keep = op.Concat(op.Gather(joining, stay, axis=0), keep, axis=1, name="kept")
    # The place in the first set of each patch; entries of the second set are overwritten.
    by_patch = np.maximum(joins.cumsum() - 1, 0)
    partners = op.Gather(op.ArgMax(cosine, axis=2, keepdims=0), by_patch, axis=1, name="partners")
    places = op.Expand(np.arange(kept)[None], op.Shape(keep), name="places")
    into = op.ScatterElements(op.Add(partners, staying), keep, places, axis=1, name="own_places")
    node.outputs = node.outputs[:2]  # score and gap have no reader
    replace(graph, node, keep, into)


def _staying(op: Builder, cosine: gs.Variable, shape: list[int | str], staying: int) -> gs.Variable:
    """Write a marker for the patches of the first set whose largest cosine is smallest, ascending."""
    novelty = op.Neg(op.ReduceMax(cosine, [2], keepdims=0), name="novelty", shape=shape)
    stay = op(KEEP_TOP_K, novelty, name="stay", shape=[shape[0], staying], domain=DOMAIN, k=staying)
    stay.dtype = np.dtype(np.int64)
    return stay
