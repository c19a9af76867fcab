"""Attention: as one node of opset 23, on heads, or in standard operators; and its masks.

The node of opset 23 reads and writes [batch, tokens, dim]: it needs no conversion to heads and back.
"""

from typing import NamedTuple

import numpy as np
import onnx_graphsurgeon as gs

from exporter.core.base.artefact import Artefact
from exporter.core.lower.decisions import BY_CHANNEL
from exporter.core.lower.graph import (
    Builder,
    as_linear,
    expand,
    markers,
    nodes_of,
    replace,
    write_linear,
)
from exporter.core.lower.markers import (
    ATTENTION,
    ATTENTION_RECEIVED,
    CLASS_ROW,
    DISSIMILARITY,
    MERGE_INTO,
    PAIR_TOKENS,
)
from exporter.core.lower.passes.projections import (
    SWAP_HEADS,
    TURNED,
    asking,
    merge_of,
    projection_of,
)
from exporter.core.prune.ops.onnx_functions import DOMAIN

PARTS = ("query", "key", "value")


class PackedProjection(NamedTuple):
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
    4. Where only the first tokens ask, in the last block, the others have no query.
    """
    heads = artefact.spec.num_heads
    changed = 0
    for node in markers(graph, ATTENTION):
        projection = projection_of(node)
        merge = merge_of(node.outputs[0])
        if projection is None or merge is None:
            continue
        packed = _unpacked(graph, node, projection)
        query, key = node.inputs[:2]
        # A list: a factor that is rewritten stops reading the query.
        for reader in list(query.outputs):
            if reader.op in READ_PARTS:
                READ_PARTS[reader.op](graph, reader, packed, heads)
        for reader in list(key.outputs):
            if reader.op in COMPARE_KEYS:
                reader.inputs[0] = packed.key
        _fuse(graph, node, merge, packed, heads)
        changed += 1
    return changed


def _fuse(
    graph: gs.Graph, node: gs.Node, merge: gs.Node, packed: PackedProjection, heads: int
) -> None:
    """Write ONNX's Attention in place of the marker and of the conversion from heads that `merge` ends."""
    by_head = node.outputs[0]
    merged = merge.outputs[0]
    mask = node.inputs[3:]
    # `context_NN` becomes the name of the new node's result.
    name = by_head.name
    by_head.name = f"{by_head.name}/heads"
    context = Builder(graph, node, prefix=name).Attention(
        *packed,
        *mask,
        name="attention",
        out=name,
        shape=packed.query.shape,
        q_num_heads=heads,
        kv_num_heads=heads,
        scale=node.attrs["scale"],
    )
    node.inputs.clear()
    if len(merged.shape) == 2:
        # Packed tokens: the exporter merged this Reshape with the one that flattens the grid.
        merge.inputs[0] = context
        return
    merge.outputs.clear()
    for reader in list(merged.outputs):
        places = [
            place for place, tensor in enumerate(reader.inputs) if tensor is merged
        ]
        reader.inputs[places[0]] = context


def _fuse_class_row(
    graph: gs.Graph, node: gs.Node, packed: PackedProjection, heads: int
) -> None:
    """Write one product for all heads: the class queries, spread over a block diagonal, times the keys.

    The zeros in other heads' columns cost a thousandth of a block's work, and the keys are not moved.
    """
    dim = int(packed.query.shape[-1])
    tokens = node.attrs["num_class_tokens"]
    # [1, heads, dim]: each head's row is the scale at its own channels, and 0 at those of others.
    own_channels = np.ones(dim // heads, np.float32)
    diagonal = np.kron(np.eye(heads, dtype=np.float32), own_channels)
    scaled = (node.attrs["scale"] * diagonal)[None].astype(np.float32)

    op = Builder(graph, node, prefix=node.outputs[0].name)
    query = op.Slice(packed.query, [0], [tokens], [1], name="take_class")
    if tokens == 1:
        spread = op.Mul(query, scaled, name="spread_heads")
    else:
        # Rows of one head side by side, as the reference has them.
        column = op.Unsqueeze(query, [1], name="column")
        spread = op.Mul(column, scaled[:, :, None], name="spread_tokens")
        spread = op.Reshape(spread, [0, heads * tokens, dim], name="spread_heads")
    keys = op.Transpose(packed.key, perm=[0, 2, 1], name="turn_keys")
    replace(graph, node, op.MatMul(spread, keys, name="query_keys"))


def _read_heads(
    graph: gs.Graph, node: gs.Node, packed: PackedProjection, heads: int
) -> None:
    """Let the attention received read heads that are cut from the parts.

    From the packed projection the heads of all three parts would be computed beside the parts.
    """
    prefix = node.outputs[0].name
    for place, part in enumerate((packed.query, packed.key)):
        op = Builder(graph, node, prefix=f"{prefix}/{PARTS[place]}")
        split = op.Reshape(part, [0, 0, heads, -1], name="split")
        node.inputs[place] = op.Transpose(split, perm=SWAP_HEADS, name="heads")


# The factors that read the queries beside the attention, and how they read the three parts.
READ_PARTS = {CLASS_ROW: _fuse_class_row, ATTENTION_RECEIVED: _read_heads}
# What reads keys in heads or not; whatever is not listed reads the heads of the packed projection.
COMPARE_KEYS = (MERGE_INTO, PAIR_TOKENS, DISSIMILARITY)


def _unpacked(
    graph: gs.Graph, node: gs.Node, projection: gs.Variable
) -> PackedProjection:
    """Return the three parts, each from its own linear layer where the projection is a linear layer."""
    count = asking(node.inputs[0])
    name = node.outputs[0].name
    shape = [*projection.shape[:-1], projection.shape[-1] // 3]
    layer = as_linear(projection)
    if layer is None:
        op = Builder(graph, node, prefix=name)
        outs = tuple(f"{name}/{part}" for part in PARTS)
        query, key, value = op.several(
            "Split", projection, outs=outs, shape=shape, axis=2, num_outputs=3
        )
        return PackedProjection(_first(op, query, count), key, value)

    weights = np.split(layer.weight, 3, axis=1)
    biases = [None] * 3 if layer.bias is None else np.split(layer.bias, 3)
    parts = []
    for part, weight, bias in zip(PARTS, weights, biases, strict=True):
        op = Builder(graph, node, prefix=f"{name}/{part}")
        tokens = _first(op, layer.tokens, count if part == PARTS[0] else None)
        parts.append(
            write_linear(op, tokens, weight, bias, [*tokens.shape[:-1], shape[-1]])
        )
    return PackedProjection(*parts)


def _first(op: Builder, tokens: gs.Variable, count: int | None) -> gs.Variable:
    """Write the first tokens; all of them where the count is None."""
    if count is None:
        return tokens
    shape = [tokens.shape[0], count, tokens.shape[2]]
    return op.Slice(tokens, [0], [count], [1], name="take_asking", shape=shape)


def split_heads(graph: gs.Graph, _: Artefact) -> int:
    """Convert every node on [batch, tokens, dim] to the marker on heads, which a later pass expands.

    It runs behind the passes that read attention as one node: query, key and value stay products of their own,
    without the biases that those passes remove.
    """
    fused = [
        node for node in nodes_of(graph, "Attention") if "q_num_heads" in node.attrs
    ]
    for node in fused:
        _split(graph, node)
    return len(fused)


def _split(graph: gs.Graph, node: gs.Node) -> None:
    parts = node.inputs[:3]
    mask = node.inputs[3:]
    merged = node.outputs[0]
    heads = node.attrs["q_num_heads"]
    dim = int(parts[2].shape[-1])
    # `context_NN` is what the marker gives, as in a block that was never fused.
    name = merged.name
    merged.name = f"{merged.name}/merged"
    op = Builder(graph, node, prefix=name)
    by_head = []
    for part, tensor in zip(PARTS, parts, strict=True):
        batch, tokens, width = tensor.shape
        shape = [batch, heads, tokens, width // heads]
        split = op.Reshape(tensor, [0, 0, heads, -1], name=f"split_{part}")
        by_head.append(
            op.Transpose(split, perm=SWAP_HEADS, name=f"{part}_heads", shape=shape)
        )
    context = op(
        ATTENTION,
        *by_head,
        *mask,
        domain=DOMAIN,
        scale=node.attrs["scale"],
        name="attention",
        out=name,
    )
    turned = op.Transpose(context, perm=SWAP_HEADS, name="turn_heads")
    joined = op.Reshape(turned, [0, 0, dim], name="merge_heads", shape=merged.shape)
    replace(graph, node, joined)


def spread_masks(graph: gs.Graph, _: Artefact) -> int:
    """Expand the mask [batch, 1, 1, keys] of an Attention node to [batch, 1, queries, keys].

    It runs once the queries are final, since those of dropped patches may be removed. Markers are left as they are:
    they expand to operators that broadcast.
    """
    masked = [node for node in nodes_of(graph, "Attention") if len(node.inputs) > 3]
    for node in masked:
        op = Builder(graph, node, prefix=node.outputs[0].name)
        count = node.inputs[0].shape[1]
        shape: gs.Variable | list[int] = [1, 1, count, 1]
        if isinstance(count, str):
            queries = op.Shape(node.inputs[0], start=1, end=2, name="count_queries")
            shape = op.Concat([1, 1], queries, [1], axis=0, name="mask_shape")
        node.inputs[3] = op.Expand(node.inputs[3], shape, name="spread_mask")
    return len(masked)


def masks_by_head(graph: gs.Graph, _: Artefact) -> int:
    """Give a float mask [batch, 1, 1, keys] of an attention, fused or on heads, a row for every head.

    At a batch of 1, OpenVINO 2026.4 on a CPU with AMX takes a mask of as many numbers as there are keys into its
    INT8 product of query and key, and computes that wrongly. A product by ones stays in its graph; an Expand would
    be left out again, since the sum broadcasts.
    """
    attentions = (*nodes_of(graph, "Attention"), *markers(graph, ATTENTION))
    masked = [
        node
        for node in attentions
        if len(node.inputs) > 3 and node.inputs[3].dtype == np.float32
    ]
    for node in masked:
        heads = node.attrs.get("q_num_heads") or int(node.inputs[0].shape[1])
        op = Builder(graph, node, prefix=node.outputs[0].name)
        ones = np.ones((1, heads, 1, 1), np.float32)
        node.inputs[3] = op.Mul(node.inputs[3], ones, name="mask_by_head")
    return len(masked)


def turn_square_contexts(graph: gs.Graph, _: Artefact) -> int:
    """Gather the rows of a context of as many queries as heads, in place of its Transpose to tokens.

    OpenVINO 2026.4 makes that Transpose part of its attention, and with a fixed batch writes the result into the
    queries' memory if both have the same shape: a head's result then replaces queries that later heads read.
    """
    changed = 0
    for node in markers(graph, ATTENTION):
        _, heads, queries, width = node.inputs[0].shape
        merge = merge_of(node.outputs[0])
        if heads == queries and merge is not None:
            _gather_rows(graph, merge.inputs[0].inputs[0], heads, width)
            changed += 1
    return changed


def _gather_rows(graph: gs.Graph, turn: gs.Node, heads: int, width: int) -> None:
    """Replace the Transpose of a context [batch, heads, heads, width]."""
    context = turn.inputs[0]
    op = Builder(graph, turn, prefix=f"{context.name}/turned")
    rows = op.Reshape(context, [0, heads * heads, width], name="rows")
    by_query = np.arange(heads * heads).reshape(heads, heads).T.ravel()
    turned = op.Gather(rows, by_query, axis=1, name="gather")
    replace(graph, turn, op.Reshape(turned, [0, heads, heads, width], name="heads"))


def sum_class_rows(graph: gs.Graph, _: Artefact) -> int:
    """Write the row of one class token as a product by elements and its sum over channels.

    TensorRT computes both in one step. Of a matrix product with one row it makes two: it computes eight rows, and
    slices them. Rows of several class tokens are left to `expand_attention`.
    """
    rows = [
        node
        for node in markers(graph, CLASS_ROW)
        if node.attrs["num_class_tokens"] == 1
    ]
    for node in rows:
        key, name = node.inputs[1], node.outputs[0].name
        op = Builder(graph, node, prefix=name)
        scaled = _class_query(op, node)
        by_channel = op.Mul(scaled, key, name="multiply", out=f"{name}/{BY_CHANNEL}")
        replace(graph, node, op.ReduceSum(by_channel, [3], keepdims=0, name="sum"))
    return len(rows)


def expand_attention(graph: gs.Graph, _: Artefact) -> int:
    """Expand both markers, on tensors of shape [batch, heads, tokens, head_dim].

    The audit of a TensorRT engine finds a block's attention by the node names.
    """
    return expand(graph, {ATTENTION: _expand_attention, CLASS_ROW: _expand_class_row})


def _expand_attention(op: Builder, node: gs.Node) -> gs.Variable:
    """Write softmax(query · scale · keyᵀ) · value; a float mask is added to the logits, another excludes keys."""
    query, key, value, *mask = node.inputs
    scaled = op.Mul(query, float(node.attrs["scale"]), name="scale_query")
    columns = op.Transpose(key, perm=TURNED, name="turn_key")
    logits = op.MatMul(scaled, columns, name="query_key")
    if mask and mask[0].dtype == np.float32:
        logits = op.Add(logits, *mask, name="mask")
    elif mask:
        logits = op.Where(*mask, logits, -np.inf, name="mask")
    weights = op.Softmax(logits, axis=-1, name="softmax")
    return op.MatMul(weights, value, name="weigh_value")


def _expand_class_row(op: Builder, node: gs.Node) -> gs.Variable:
    """Write the rows scale · q_class · keyᵀ; the class tokens are the first."""
    query, key = node.inputs
    tokens = node.attrs["num_class_tokens"]
    scaled = _class_query(op, node)
    columns = op.Transpose(key, perm=TURNED, name="turn_key")
    row = op.MatMul(scaled, columns, name="query_key")
    if tokens == 1:
        return op.Squeeze(row, [2], name="flatten")
    rows = int(query.shape[1]) * tokens
    return op.Reshape(row, [0, rows, -1], name="flatten")


def _class_query(op: Builder, node: gs.Node) -> gs.Variable:
    """Write the scaled query of the class tokens, which are the first."""
    tokens = node.attrs["num_class_tokens"]
    first = op.Slice(node.inputs[0], [0], [tokens], [2], name="take_class")
    return op.Mul(first, float(node.attrs["scale"]), name="scale_query")
