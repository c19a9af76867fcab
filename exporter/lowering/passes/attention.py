"""Attention: as one node of opset 23, on heads, or in standard operators; its biases and its masks.

The exporter turns a packed projection [batch, tokens, 3·dim] into heads by Reshape, Transpose, Slice and Squeeze,
and the result back by Transpose and Reshape. The node of opset 23 reads and writes [batch, tokens, dim] and needs
none of them.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import onnx_graphsurgeon as gs

from exporter.artefact import Artefact
from exporter.lowering.decisions import BY_CHANNEL
from exporter.lowering.graph import (
    Builder,
    LinearLayer,
    as_linear,
    has_constants,
    markers,
    nodes_of,
    producer,
    replace,
    write_linear,
)
from exporter.lowering.markers import (
    ATTENTION,
    ATTENTION_RECEIVED,
    CLASS_ROW,
    DISSIMILARITY,
    MERGE_INTO,
    PAIR_TOKENS,
)
from exporter.ops.onnx_functions import DOMAIN
from exporter.tensor_names import Array

# [batch, tokens, 3, heads, head_dim] to [3, batch, heads, tokens, head_dim].
SPLIT_HEADS = [2, 0, 3, 1, 4]
# [batch, tokens, heads, head_dim] to [batch, heads, tokens, head_dim], and back; and keys to columns.
SWAP_HEADS = [0, 2, 1, 3]
TURNED = [0, 1, 3, 2]

PARTS = ("query", "key", "value")
COMPARES_KEYS = (MERGE_INTO, PAIR_TOKENS, DISSIMILARITY)


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
        projection = _projection_of(node)
        merge = _merge(node.outputs[0])
        if projection is None or merge is None:
            continue
        packed = _unpacked(graph, node, projection)
        query, key = node.inputs[:2]
        # A list: a factor that is rewritten stops reading the query.
        for reader in list(query.outputs):
            if reader.op in READ_PARTS:
                READ_PARTS[reader.op](graph, reader, packed, heads)
        for reader in list(key.outputs):
            if reader.op in COMPARES_KEYS:
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


def _projection_of(node: gs.Node) -> gs.Variable | None:
    """Return the packed projection that query, key and value are slices of, in this order; else None."""
    query, key, value = node.inputs[:3]
    if _asking(query) is not None:
        # Of the first tokens alone: the heads of all tokens are in front of that Slice.
        query = query.inputs[0].inputs[0]
    projections = []
    for place, heads in enumerate((query, key, value)):
        third = _slice_of(heads)
        if third is None or third[1] != place:
            return None
        projections.append(third[0])
    same = projections[0] is projections[1] is projections[2]
    return projections[0] if same else None


def _asking(query: gs.Tensor) -> int | None:
    """Return how many of the first tokens have a query, [batch, heads, tokens, head_dim]; None for all of them."""
    node = producer(query, "Slice")
    if node is None or not has_constants(node):
        return None
    start, end, axis = (int(limit.values.item()) for limit in node.inputs[1:4])
    return end if (start, axis) == (0, 2) else None


def _unpacked(
    graph: gs.Graph, node: gs.Node, projection: gs.Variable
) -> PackedProjection:
    """Return the three parts, each from its own linear layer where the projection is a linear layer."""
    asking = _asking(node.inputs[0])
    name = node.outputs[0].name
    shape = [*projection.shape[:-1], projection.shape[-1] // 3]
    layer = as_linear(projection)
    if layer is None:
        op = Builder(graph, node, prefix=name)
        outs = tuple(f"{name}/{part}" for part in PARTS)
        query, key, value = op.several(
            "Split", projection, outs=outs, shape=shape, axis=2, num_outputs=3
        )
        return PackedProjection(_first(op, query, asking), key, value)

    weights = np.split(layer.weight, 3, axis=1)
    biases = [None] * 3 if layer.bias is None else np.split(layer.bias, 3)
    parts = []
    for part, weight, bias in zip(PARTS, weights, biases, strict=True):
        op = Builder(graph, node, prefix=f"{name}/{part}")
        tokens = _first(op, layer.tokens, asking if part == PARTS[0] else None)
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


def _slice_of(heads: gs.Tensor) -> tuple[gs.Variable, int] | None:
    """Return the packed projection that a tensor of heads comes from, and which third it is."""
    path = []
    tensor = heads
    # Backwards: the exporter splits and turns the projection once, and takes each part from the result.
    for operator in ("Squeeze", "Slice", "Transpose", "Reshape"):
        node = producer(tensor, operator)
        if node is None:
            return None
        path.append(node)
        tensor = node.inputs[0]
    cut, turn = path[1:3]
    start = cut.inputs[1]
    if turn.attrs["perm"] != SPLIT_HEADS or not isinstance(start, gs.Constant):
        return None
    return tensor, int(start.values.item())


def _merge(context: gs.Variable) -> gs.Node | None:
    """Return the Reshape that ends the conversion from heads to tokens; None where heads have another reader."""
    if len(context.outputs) != 1 or context.outputs[0].op != "Transpose":
        return None
    turn = context.outputs[0]
    readers = turn.outputs[0].outputs
    if (
        turn.attrs["perm"] != SWAP_HEADS
        or len(readers) != 1
        or readers[0].op != "Reshape"
    ):
        return None
    return readers[0]


def fold_attention_biases(graph: gs.Graph, _: Artefact) -> int:
    """Drop the bias of the keys, and move that of the values into the projection after the attention.

    1. The key's bias adds the same number, query · bias, to every logit of a softmax row, so the softmax does not
       change. The class row changes by one number per head, and its softmax does not. Keys that are
       compared where tokens merge keep their bias: it changes their cosines.
    2. The weights of a row sum to 1, so attention passes the value's bias on unchanged. The projection then turns
       it into bias · W + b, computed in float64.
    3. The values keep their bias where the projection does not directly follow the attention (a norm between them).
    """
    return sum(
        _drop_key_bias(node) + _move_value_bias(node)
        for node in nodes_of(graph, "Attention")
    )


def _drop_key_bias(node: gs.Node) -> int:
    key = node.inputs[1]
    layer = as_linear(key)
    compared = any(reader.op in COMPARES_KEYS for reader in key.outputs)
    if layer is None or layer.bias is None or compared:
        return 0
    _drop_bias(layer)
    return 1


def _move_value_bias(node: gs.Node) -> int:
    value = node.inputs[2]
    context = node.outputs[0]
    layer = as_linear(value)
    if layer is None or layer.bias is None:
        return 0
    # Another reader of the values, or of the context, needs the bias where it is.
    if len(value.outputs) != 1 or len(context.outputs) != 1:
        return 0
    if not _add_to_projection(context, layer.bias):
        return 0
    _drop_bias(layer)
    return 1


def _drop_bias(layer: LinearLayer) -> None:
    """Let the product of a layer give the layer's result."""
    multiply, add = layer.nodes
    multiply.outputs = add.outputs
    add.outputs = []


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


def bare_projections(graph: gs.Graph, artefact: Artefact) -> int:
    """Take the bias out of every packed projection, so that TensorRT computes query, key and value in one step.

    With a bias it writes each part once more, to add the bias and to turn it into heads; and it no longer sees that
    the weights of a quantized projection are quantized.

    1. The query's bias is added to its heads.
    2. The key's adds one number to all logits of a query and head, which no softmax sees. It is added to the heads
       that are compared where tokens merge: it changes their cosines.
    3. The value's passes through the attention, whose weights sum to 1, into the projection behind it. It is added
       to the heads where a norm is between.

    A projection that something else reads too keeps its bias.
    """
    changed = 0
    for node in markers(graph, ATTENTION):
        projection = _projection_of(node)
        layer = None if projection is None else as_linear(projection)
        if layer is None or layer.bias is None or not _gives_heads_alone(node):
            continue
        _drop_bias(layer)
        query, key, value = (
            bias.reshape(artefact.spec.num_heads, 1, -1)
            for bias in np.split(layer.bias, 3)
        )
        heads = node.inputs[0]
        _add_to_heads(graph, heads, query, list(heads.outputs))
        heads = node.inputs[1]
        comparing = [reader for reader in heads.outputs if reader.op in COMPARES_KEYS]
        _add_to_heads(graph, heads, key, comparing)
        if not _passed_on(node, value.reshape(-1)):
            _add_to_heads(graph, node.inputs[2], value, [node])
        changed += 1
    return changed


def _gives_heads_alone(node: gs.Node) -> bool:
    """Whether all readers of the packed projection are query, key and value of this attention, see `_slice_of`."""
    query, key, value = node.inputs[:3]
    if _asking(query) is not None:
        if len(query.inputs[0].inputs[0].outputs) != 1:
            return False
        query = query.inputs[0].inputs[0]
    for heads in (query, key, value):
        tensor = heads.inputs[0].inputs[0]
        # One Squeeze a slice, three slices of one Transpose, and one Reshape of the projection.
        for readers in (1, 3, 1):
            if len(tensor.outputs) != readers:
                return False
            tensor = tensor.inputs[0].inputs[0]
    return [reader.op for reader in tensor.outputs if reader.op != "Shape"] == [
        "Reshape"
    ]


def _add_to_heads(
    graph: gs.Graph, heads: gs.Variable, bias: Array, readers: Sequence[gs.Node]
) -> None:
    """Let these readers read heads [batch, heads, tokens, head_dim] with a bias [heads, 1, head_dim]."""
    if not readers:
        return
    first = next(
        node for node in graph.nodes if any(node is reader for reader in readers)
    )
    op = Builder(graph, first, prefix=heads.name)
    biased = op.Add(heads, bias, name="add_bias", shape=heads.shape)
    for reader in readers:
        reader.inputs = [
            biased if tensor is heads else tensor for tensor in reader.inputs
        ]


def _passed_on(node: gs.Node, bias: Array) -> bool:
    """Add the value's bias to that of the projection behind an attention on heads; False where there is none."""
    merge = _merge(node.outputs[0])
    if (
        merge is None
        or len(node.inputs[2].outputs) != 1
        or len(merge.outputs[0].outputs) != 1
    ):
        return False
    return _add_to_projection(merge.outputs[0], bias)


def _add_to_projection(context: gs.Variable, bias: Array) -> bool:
    """Add bias · W to the bias of the linear layer that alone reads the context; False where none does."""
    product = context.outputs[0].outputs[0]
    projection = as_linear(product.outputs[0].outputs[0]) if product.outputs else None
    if projection is None or projection.bias is None:
        return False
    passed_on = bias.astype(np.float64) @ projection.weight.astype(np.float64)
    moved = (passed_on + projection.bias).astype(np.float32)
    projection.nodes[1].inputs[1] = gs.Constant(f"{context.name}/projected_bias", moved)
    return True


def spread_masks(graph: gs.Graph, _: Artefact) -> int:
    """Expand the mask [batch, 1, 1, keys] of an Attention node to [batch, 1, queries, keys].

    It runs once the queries are final, since those of dropped patches may be removed. Markers are left as they are:
    they expand to operators that broadcast.
    """
    masked = [node for node in nodes_of(graph, "Attention") if len(node.inputs) > 3]
    for node in masked:
        op = Builder(graph, node, prefix=node.outputs[0].name)
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
        merge = _merge(node.outputs[0])
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
        (query, key), name = node.inputs, node.outputs[0].name
        op = Builder(graph, node, prefix=name)
        first = op.Slice(query, [0], [1], [2], name="take_class")
        scaled = op.Mul(first, float(node.attrs["scale"]), name="scale_query")
        by_channel = op.Mul(scaled, key, name="multiply", out=f"{name}/{BY_CHANNEL}")
        replace(graph, node, op.ReduceSum(by_channel, [3], keepdims=0, name="sum"))
    return len(rows)


def expand_attention(graph: gs.Graph, _: Artefact) -> int:
    """Expand both markers, on tensors of shape [batch, heads, tokens, head_dim].

    The audit of a TensorRT engine finds a block's attention by the node names.
    """
    attentions = markers(graph, ATTENTION)
    rows = markers(graph, CLASS_ROW)
    for node in attentions:
        _expand_attention(graph, node)
    for node in rows:
        _expand_class_row(graph, node)
    return len(attentions) + len(rows)


def _expand_attention(graph: gs.Graph, node: gs.Node) -> None:
    """Write softmax(query · scale · keyᵀ) · value; a float mask is added to the logits, another excludes keys."""
    query, key, value, *mask = node.inputs
    op = Builder(graph, node, prefix=node.outputs[0].name)
    scaled = op.Mul(query, float(node.attrs["scale"]), name="scale_query")
    logits = op.MatMul(
        scaled, op.Transpose(key, perm=TURNED, name="turn_key"), name="query_key"
    )
    if mask and mask[0].dtype == np.float32:
        logits = op.Add(logits, *mask, name="mask")
    elif mask:
        logits = op.Where(*mask, logits, -np.inf, name="mask")
    weights = op.Softmax(logits, axis=-1, name="softmax")
    replace(graph, node, op.MatMul(weights, value, name="weigh_value"))


def _expand_class_row(graph: gs.Graph, node: gs.Node) -> None:
    """Write the rows scale · q_class · keyᵀ; the class tokens are the first."""
    (query, key), tokens = node.inputs, node.attrs["num_class_tokens"]
    op = Builder(graph, node, prefix=node.outputs[0].name)
    first = op.Slice(query, [0], [tokens], [2], name="take_class")
    scaled = op.Mul(first, float(node.attrs["scale"]), name="scale_query")
    row = op.MatMul(
        scaled, op.Transpose(key, perm=TURNED, name="turn_key"), name="query_key"
    )
    if tokens == 1:
        replace(graph, node, op.Squeeze(row, [2], name="flatten"))
        return
    rows = int(query.shape[1]) * tokens
    replace(graph, node, op.Reshape(row, [0, rows, -1], name="flatten"))
