"""Expand what packed tokens become when patches go into standard operators."""

import onnx_graphsurgeon as gs

from exporter.artefact import Artefact
from exporter.lowering.builder import Builder
from exporter.lowering.graph import markers, replace
from exporter.lowering.markers import PACK_TOKENS

__all__ = ["expand_packing"]


def expand_packing(graph: gs.Graph, artefact: Artefact) -> int:
    """Expand PackTokens (`exporter.ops.packing`): the rows that stay, and where they stand."""
    del artefact
    packing = markers(graph, PACK_TOKENS)
    for node in packing:
        _expand(graph, node)
    return len(packing)


def _expand(graph: gs.Graph, node: gs.Node) -> None:
    (slots, index, count), prefix = node.inputs, node.attrs["num_prefix_tokens"]
    op = Builder(graph, node, prefix=node.outputs[1].name)
    width = op.Squeeze(op.Shape(index, start=1, end=2), [0], name="width")
    columns = op.Range(0, op.Add(width, prefix, name="tokens"), 1, name="columns")
    tokens = op.Unsqueeze(op.Add(count, prefix, name="own"), [1], name="own_column")
    live = op.Less(columns, tokens, name="live")
    places = op.Reshape(op.NonZero(op.Reshape(live, [-1], name="flat")), [-1], name="places")
    before = op.Slice(slots, [0], [prefix], [1], name="prefix")
    patches = op.Slice(slots, [prefix], [2**62], [1], name="patches")
    taken = op.Concat(
        before, op.GatherElements(patches, index, axis=1, name="survivors"), axis=1, name="taken"
    )
    rows = op.Gather(op.Reshape(taken, [-1], name="flat_taken"), places, axis=0, name="rows")
    start = op.CumSum(tokens, 0, exclusive=1, name="start")
    within = op.Min(columns, op.Sub(tokens, 1, name="last"), name="within")
    replace(graph, node, rows, live, op.Add(start, within, name="slots"), places)
