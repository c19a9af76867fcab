"""The linear layers around an attention: the packed projection before it, the one behind it, and their biases.

The exporter turns a packed projection [batch, tokens, 3·dim] into heads by Reshape, Transpose, Slice and Squeeze,
and the result back by Transpose and Reshape.
"""

from collections.abc import Sequence

import numpy as np
import onnx_graphsurgeon as gs

from exporter.core.base.artefact import Artefact
from exporter.core.base.tensor_names import Array
from exporter.core.lower.graph import (
    Builder,
    LinearLayer,
    as_linear,
    has_constants,
    markers,
    nodes_of,
    producer,
    rewire,
)
from exporter.core.lower.markers import (
    ATTENTION,
    ATTENTION_RECEIVED,
    CLASS_ROW,
)

# [batch, tokens, 3, heads, head_dim] to [3, batch, heads, tokens, head_dim].
SPLIT_HEADS = [2, 0, 3, 1, 4]
# [batch, tokens, heads, head_dim] to [batch, heads, tokens, head_dim], and back; and keys to columns.
SWAP_HEADS = [0, 2, 1, 3]
TURNED = [0, 1, 3, 2]

# Readers of keys whose softmax does not see the bias, and Shape, which sees no values. Any other reader sees it.
SEE_NO_KEY_BIAS = (ATTENTION, CLASS_ROW, ATTENTION_RECEIVED, "Shape")
# How the class row and the attention received read keys that are not in heads, see `passes.attention`.
ROWS_OF_SOFTMAX = ("Transpose", "Reshape")


def projection_of(node: gs.Node) -> gs.Variable | None:
    """Return the packed projection that query, key and value are slices of, in this order; else None."""
    query, key, value = node.inputs[:3]
    if asking(query) is not None:
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


def asking(query: gs.Tensor) -> int | None:
    """Return how many of the first tokens have a query, [batch, heads, tokens, head_dim]; None for all of them."""
    node = producer(query, "Slice")
    if node is None or not has_constants(node):
        return None
    start, end, axis = (int(limit.values.item()) for limit in node.inputs[1:4])
    return end if (start, axis) == (0, 2) else None


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


def merge_of(context: gs.Variable) -> gs.Node | None:
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
       change. The class row changes by one number per head, and its softmax does not. Keys that anything else
       reads, such as the cosines by which tokens merge, keep their bias.
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
    unseen = (*SEE_NO_KEY_BIAS, *ROWS_OF_SOFTMAX)
    seen = any(reader.op not in unseen for reader in key.outputs)
    if layer is None or layer.bias is None or seen:
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


def bare_projections(graph: gs.Graph, artefact: Artefact) -> int:
    """Take the bias out of every packed projection, so that TensorRT computes query, key and value in one step.

    With a bias it writes each part once more, to add the bias and to turn it into heads; and it no longer sees that
    the weights of a quantized projection are quantized.

    1. The query's bias is added to its heads.
    2. The key's adds one number to all logits of a query and head, which no softmax sees. It is added to the heads
       that anything else reads, such as the cosines by which tokens merge.
    3. The value's passes through the attention, whose weights sum to 1, into the projection behind it. It is added
       to the heads where a norm is between.

    A projection that something else reads too keeps its bias.
    """
    changed = 0
    for node in markers(graph, ATTENTION):
        projection = projection_of(node)
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
        seeing = [
            reader for reader in heads.outputs if reader.op not in SEE_NO_KEY_BIAS
        ]
        _add_to_heads(graph, heads, key, seeing)
        if not _passed_on(node, value.reshape(-1)):
            _add_to_heads(graph, node.inputs[2], value, [node])
        changed += 1
    return changed


def _gives_heads_alone(node: gs.Node) -> bool:
    """Whether all readers of the packed projection are query, key and value of this attention, see `_slice_of`."""
    query, key, value = node.inputs[:3]
    if asking(query) is not None:
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
    rewire(heads, biased, readers)


def _passed_on(node: gs.Node, bias: Array) -> bool:
    """Add the value's bias to that of the projection behind an attention on heads; False where there is none."""
    merge = merge_of(node.outputs[0])
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
