"""Let each image's packed tokens attend to each other as they lie, by TensorRT's own operator."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from exporter.artefact import Artefact
from exporter.lowering.builder import Builder
from exporter.lowering.graph import markers, producer, replace
from exporter.lowering.markers import ATTENTION, CLASS_ROW, PACK_TOKENS
from exporter.lowering.passes.fuse_attention import MERGE_HEADS, PARTS, projection_of
from exporter.ops.packed_attention import FORMS, TRT, TRT_ATTENTION

__all__ = ["packed_attention"]

INT32 = onnx.TensorProto.INT32


@dataclass(frozen=True)
class Spread:
    """An attention marker whose tokens are packed but for it: `gather` takes its context back from the grid."""

    attention: gs.Node
    gather: gs.Node
    packing: gs.Node


def packed_attention(graph: gs.Graph, artefact: Artefact) -> int:
    """Write TRT_Attention on [tokens, heads, head_dim] where attention alone has its tokens in a grid, with a mask.

    1. PackTokens also gives the number of tokens before each image. TensorRT wants it twice, as two tensors:
       NVIDIA's tools, which write this operator too, say that it crashes on one tensor in both places.
    2. The query is scaled: the operator has no scale.
    3. Heads that come directly from one projection are never in a grid. A class row then spreads its own class
       tokens and keys.
    4. A norm on query or key, or a rotation by position, keeps the grid: its rows are taken from there.

    Tokens that no image has lost yet lie in a grid without padding: those blocks are left to a later pass.
    """
    del artefact
    spread = [each for node in markers(graph, ATTENTION) if (each := _spread(node)) is not None]
    lengths = {node.outputs[1].name: _lengths(graph, node) for node in markers(graph, PACK_TOKENS)}
    for each in spread:
        _pack(graph, each, lengths[each.packing.outputs[1].name])
    return len(spread)


def _spread(node: gs.Node) -> Spread | None:
    """Return where the context of an attention is packed again; None where it stays in a grid."""
    gather = node
    while gather.op != "Gather":
        readers = gather.outputs[0].outputs
        if len(readers) != 1 or readers[0].op not in ("Transpose", "Reshape", "Gather"):
            return None
        gather = readers[0]
    packing = producer(gather.inputs[1])
    while packing is not None and packing.op == "Reshape":
        packing = producer(packing.inputs[0])
    return Spread(node, gather, packing) if packing is not None and packing.op == PACK_TOKENS else None


def _lengths(graph: gs.Graph, packing: gs.Node) -> tuple[gs.Variable, gs.Variable]:
    """Return the cumulative numbers of tokens [images + 1] as int32, for the queries and for the keys."""
    name = packing.outputs[1].name
    lengths = gs.Variable(f"{name}/lengths", np.int64)
    packing.outputs.append(lengths)
    op = Builder(graph, prefix=name)
    return op.Cast(lengths, to=INT32, name="query_lengths"), op.Cast(lengths, to=INT32, name="kv_lengths")


def _pack(graph: gs.Graph, spread: Spread, lengths: tuple[gs.Variable, gs.Variable]) -> None:
    node, (packed,) = spread.attention, spread.gather.outputs
    (context,), (_, heads, _, head_dim) = node.outputs, node.inputs[0].shape
    name, context.name = context.name, f"{context.name}/grid"
    op, shape = Builder(graph, node, prefix=name), [packed.shape[0], heads, head_dim]
    query, key, value = _heads(op, spread, shape)
    scaled = op.Mul(query, float(node.attrs["scale"]), name="scale_query", shape=shape)
    operands = (scaled, key, value, gs.Variable.empty(), *lengths)
    result = op(TRT_ATTENTION, *operands, name="attention", out=name, shape=shape, domain=TRT, **FORMS)
    merged = op.Reshape(result, [-1, heads * head_dim], name="merge_heads", shape=packed.shape)
    node.inputs.clear()
    replace(graph, spread.gather, merged)


def _heads(op: Builder, spread: Spread, shape: list[Any]) -> tuple[gs.Variable, ...]:
    """Return query, key and value of a shape, which is [tokens, heads, head_dim]."""
    node, split = spread.attention, [-1, *shape[1:]]
    projection = projection_of(node)
    grid = None if projection is None else producer(projection, "Gather")
    if grid is None or producer(grid.inputs[1], PACK_TOKENS) is not spread.packing:
        places = spread.gather.inputs[1]
        turned = (op.Transpose(each, perm=MERGE_HEADS, name="turn") for each in node.inputs[:3])
        flat = (op.Reshape(each, split, name="flat") for each in turned)
        return tuple(op.Gather(each, places, axis=0, name="take", shape=shape) for each in flat)
    packed, slots = grid.inputs
    outs = tuple(f"{op.prefix}/{part}" for part in PARTS)
    parts = op.several("Split", packed, [shape[1] * shape[2]] * 3, outs=outs, axis=1, name="split")
    query, key, value = (op.Reshape(each, split, name="heads", shape=shape) for each in parts)
    for row in [each for each in node.inputs[0].outputs if each.op == CLASS_ROW]:
        _spread_class_row(op, row, query, key, slots)
    return query, key, value


def _spread_class_row(
    op: Builder, row: gs.Node, query: gs.Variable, key: gs.Variable, slots: gs.Variable
) -> None:
    """Let a class row read the class tokens and the keys of each image, from where they are packed."""
    count = row.attrs["num_class_tokens"]
    first = op.Slice(slots, [0], [count], [1], name="class_slots")
    batch, heads, width, head_dim = row.inputs[1].shape
    for place, (part, rows, tokens) in enumerate(((query, first, count), (key, slots, width))):
        grid = op.Gather(part, rows, axis=0, name="spread")
        shape = [batch, heads, tokens, head_dim]
        row.inputs[place] = op.Transpose(grid, perm=MERGE_HEADS, name="spread_heads", shape=shape)
