"""Fuse attention into the standard node of opset 23, on tokens in the layout of the QKV projection.

The exporter turns a packed projection [batch, tokens, 3·dim] into heads by Reshape, Transpose, Slice and Squeeze,
and the result back by Transpose and Reshape. The node reads and writes [batch, tokens, dim] and needs none of them.
"""

from dataclasses import dataclass

import numpy as np
import onnx_graphsurgeon as gs

from exporter.artefact import Artefact
from exporter.lowering.builder import Builder
from exporter.lowering.graph import as_linear, linear, markers, producer, replace
from exporter.lowering.markers import (
    ATTENTION,
    CLASS_ROW,
    DISSIMILARITY,
    DOMAIN,
    MERGE_INTO,
    PAIR_TOKENS,
    RECEIVED,
)

__all__ = ["COMPARES_KEYS", "fuse_attention"]

# [batch, tokens, 3, heads, head_dim] to [3, batch, heads, tokens, head_dim], and heads back to tokens.
SPLIT_HEADS, MERGE_HEADS = [2, 0, 3, 1, 4], [0, 2, 1, 3]

PARTS = ("query", "key", "value")
COMPARES_KEYS = (MERGE_INTO, PAIR_TOKENS, DISSIMILARITY)


@dataclass(frozen=True)
class Packed:
    """The three parts of a packed projection, each [batch, tokens, dim]."""

    query: gs.Variable
    key: gs.Variable
    value: gs.Variable


def fuse_attention(graph: gs.Graph, artefact: Artefact) -> int:
    """Fuse every attention whose heads come directly from one packed projection.

    1. A norm on query or key needs the heads as they are: those blocks are left to a later pass.
    2. The projection becomes one product for each of the three parts: splitting the result of one product would
       copy it, 2 % of a model's time. A projection that is not a plain linear layer is split by Split.
    3. The class row of a fused block reads the same parts, see `_fuse_class_row`; so does what compares keys, and
       the attention received, whose rows are too many for one product of all heads.
    """
    heads = artefact.spec.num_heads
    changed = 0
    for node in markers(graph, ATTENTION):
        projection = _projection_of(node)
        merge = _merge(node.outputs[0])
        if projection is None or merge is None:
            continue
        packed = _unpacked(graph, node, projection)
        for row in [each for each in node.inputs[0].outputs if _is_class_row(each)]:
            _fuse_class_row(graph, row, packed, heads)
        for receiving in [each for each in node.inputs[0].outputs if each.op == RECEIVED]:
            _read_parts(graph, receiving, packed, heads)
        for comparing in [each for each in node.inputs[1].outputs if each.op in COMPARES_KEYS]:
            comparing.inputs[0] = packed.key
        _fuse(graph, node, merge, packed, heads)
        changed += 1
    return changed


def _fuse(graph: gs.Graph, node: gs.Node, merge: gs.Node, packed: Packed, heads: int) -> None:
    (by_head,), (merged,), mask = node.outputs, merge.outputs, node.inputs[3:]
    attributes = {"q_num_heads": heads, "kv_num_heads": heads, "scale": node.attrs["scale"]}
    name, by_head.name = by_head.name, f"{by_head.name}/heads"
    op = Builder(graph, node, prefix=name)
    context = op.Attention(
        packed.query,
        packed.key,
        packed.value,
        *mask,
        **attributes,
        name="attention",
        out=name,
        shape=packed.query.shape,
    )
    node.inputs.clear()
    if len(merged.shape) == 2:
        # Packed tokens: the exporter merged this Reshape with the one that flattens the grid.
        merge.inputs[0] = context
        return
    merge.outputs.clear()
    for reader in list(merged.outputs):
        reader.inputs[[each is merged for each in reader.inputs].index(True)] = context


def _fuse_class_row(graph: gs.Graph, node: gs.Node, packed: Packed, heads: int) -> None:
    """Write one product for all heads: the class queries, spread over a block diagonal, times the keys.

    The zeros in other heads' columns cost a thousandth of a block's work, and the keys are not moved.
    """
    dim = int(np.asarray(packed.query.shape)[-1])
    diagonal = np.kron(np.eye(heads, dtype=np.float32), np.ones(dim // heads, dtype=np.float32))
    scaled = (node.attrs["scale"] * diagonal)[None].astype(np.float32)
    op = Builder(graph, node, prefix=node.outputs[0].name)
    tokens = node.attrs["num_class_tokens"]
    query = op.Slice(packed.query, [0], [tokens], [1], name="take_class")
    if tokens == 1:
        spread = op.Mul(query, scaled, name="spread_heads")
    else:
        column = op.Unsqueeze(query, [1], name="column")
        spread = op.Mul(column, scaled[:, :, None], name="spread_tokens")
        spread = op.Reshape(spread, [0, heads * tokens, dim], name="spread_heads")
    keys = op.Transpose(packed.key, perm=[0, 2, 1], name="turn_keys")
    replace(graph, node, op.MatMul(spread, keys, name="query_keys"))


def _read_parts(graph: gs.Graph, node: gs.Node, packed: Packed, heads: int) -> None:
    """Let the attention received read heads that are cut from the parts."""
    for place, (name, part) in enumerate((("query", packed.query), ("key", packed.key))):
        op = Builder(graph, node, prefix=f"{node.outputs[0].name}/{name}")
        split = op.Reshape(part, [0, 0, heads, -1], name="split")
        node.inputs[place] = op.Transpose(split, perm=MERGE_HEADS, name="heads")


def _is_class_row(node: gs.Node) -> bool:
    return node.op == CLASS_ROW and node.domain == DOMAIN


def _projection_of(node: gs.Node) -> gs.Variable | None:
    """Return the packed projection that query, key and value are slices of, in this order; else None."""
    thirds = [_slice_of(tensor) for tensor in node.inputs[:3]]
    found = [third[0] for place, third in enumerate(thirds) if third is not None and third[1] == place]
    return found[0] if len(found) == 3 and all(each is found[0] for each in found) else None


def _unpacked(graph: gs.Graph, node: gs.Node, projection: gs.Variable) -> Packed:
    """Return the three parts, each from its own linear layer where the projection is a linear layer."""
    name, shape = node.outputs[0].name, [*projection.shape[:-1], projection.shape[-1] // 3]
    layer = as_linear(projection)
    if layer is None:
        op, outs = Builder(graph, node, prefix=name), tuple(f"{name}/{part}" for part in PARTS)
        return Packed(*op.several("Split", projection, outs=outs, shape=shape, axis=2, num_outputs=3))
    weights = np.split(layer.weight, 3, axis=1)
    biases = [None] * 3 if layer.bias is None else np.split(layer.bias, 3)
    parts = []
    for part, weight, bias in zip(PARTS, weights, biases, strict=True):
        op = Builder(graph, node, prefix=f"{name}/{part}")
        parts.append(linear(op, layer.tokens, weight, bias, shape))
    return Packed(*parts)


def _slice_of(tensor: gs.Tensor) -> tuple[gs.Variable, int] | None:
    """Return the packed projection that a tensor of heads comes from, and which third it is."""
    path = []
    for operator in ("Squeeze", "Slice", "Transpose", "Reshape"):
        node = producer(tensor, operator)
        if node is None:
            return None
        path.append(node)
        tensor = node.inputs[0]
    _, slice_, turn, _ = path
    if turn.attrs["perm"] != SPLIT_HEADS or not isinstance(slice_.inputs[1], gs.Constant):
        return None
    return tensor, int(slice_.inputs[1].values.item())


def _merge(context: gs.Variable) -> gs.Node | None:
    """Return the Reshape that ends the conversion from heads to tokens; None where heads have another reader."""
    if len(context.outputs) != 1 or context.outputs[0].op != "Transpose":
        return None
    turn = context.outputs[0]
    readers = turn.outputs[0].outputs
    if turn.attrs["perm"] != MERGE_HEADS or len(readers) != 1 or readers[0].op != "Reshape":
        return None
    return readers[0]
