"""Expand an attention mask to every query: ONNX Runtime broadcasts it only over batch and heads."""

import numpy as np
import onnx_graphsurgeon as gs

from exporter.artefact import Artefact
from exporter.lowering.builder import Builder
from exporter.lowering.graph import nodes_of, producer
from exporter.lowering.markers import PACK_SURVIVORS

__all__ = ["spread_masks"]


def spread_masks(graph: gs.Graph, artefact: Artefact) -> int:
    """Expand the mask [batch, 1, 1, keys] of an Attention node to [batch, 1, queries, keys].

    It runs once the queries are final, since those of dropped patches may be removed. Markers are left as they are:
    they expand to operators that broadcast. PackSurvivors gives the expanded mask itself: four nodes less a layer.
    """
    del artefact
    masked = [node for node in nodes_of(graph, "Attention") if len(node.inputs) > 3]
    for node in masked:
        packing = _packing(node)
        node.inputs[3] = _expanded(graph, node) if packing is None else _mask_of(packing)
    return len(masked)


def _expanded(graph: gs.Graph, node: gs.Node) -> gs.Variable:
    query, mask = node.inputs[0], node.inputs[3]
    op = Builder(graph, node, prefix=node.outputs[0].name)
    # [batch, tokens, dim], or with heads before the tokens
    axis = 1 if "q_num_heads" in node.attrs else 2
    queries = op.Shape(query, start=axis, end=axis + 1, name="count_queries")
    shape = op.Concat([1, 1], queries, [1], axis=0, name="mask_shape")
    return op.Expand(mask, shape, name="spread_mask")


def _packing(node: gs.Node) -> gs.Node | None:
    """Return the PackSurvivors whose live places are the mask, where each of them is a query as well."""
    query, key, mask = node.inputs[0], node.inputs[1], node.inputs[3]
    split, column = producer(query, "Split"), producer(mask, "Unsqueeze")
    if split is None or producer(key) is not split or column is None:
        return None
    live = column.inputs[0]
    packing = producer(live, PACK_SURVIVORS)
    return packing if packing is not None and live is packing.outputs[1] else None


def _mask_of(packing: gs.Node) -> gs.Variable:
    """Return output 4 of PackSurvivors, which it has where a node reads it."""
    if len(packing.outputs) < 5:
        batch, width = packing.outputs[1].shape
        name = f"{packing.outputs[1].name}/mask"
        packing.outputs.append(gs.Variable(name, np.bool_, [batch, 1, width, width]))
    mask: gs.Variable = packing.outputs[4]
    return mask
