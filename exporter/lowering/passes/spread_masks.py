"""Expand an attention mask to every query: ONNX Runtime broadcasts it only over batch and heads."""

import onnx_graphsurgeon as gs

from exporter.artefact import Artefact
from exporter.lowering.builder import Builder
from exporter.lowering.graph import nodes_of

__all__ = ["spread_masks"]


def spread_masks(graph: gs.Graph, artefact: Artefact) -> int:
    """Expand the mask [batch, 1, 1, keys] of an Attention node to [batch, 1, queries, keys].

    It runs once the queries are final, since those of dropped patches may be removed. Markers are left as they are:
    they expand to operators that broadcast.
    """
    del artefact
    masked = [node for node in nodes_of(graph, "Attention") if len(node.inputs) > 3]
    for node in masked:
        node.inputs[3] = _expanded(graph, node)
    return len(masked)


def _expanded(graph: gs.Graph, node: gs.Node) -> gs.Variable:
    query, mask = node.inputs[0], node.inputs[3]
    op = Builder(graph, node, prefix=node.outputs[0].name)
    queries = op.Shape(query, start=1, end=2, name="count_queries")
    shape = op.Concat([1, 1], queries, [1], axis=0, name="mask_shape")
    return op.Expand(mask, shape, name="spread_mask")
