"""Attention as the one standard node of opset 23, on tokens as the QKV projection leaves them.

The exporter turns a packed projection [batch, tokens, 3·dim] into heads by Reshape, Transpose, Slice and Squeeze,
and the result back by Transpose and Reshape. The node takes and gives [batch, tokens, dim], so all of that goes.
"""

from dataclasses import dataclass

import numpy as np
import onnx_graphsurgeon as gs

from exporter.artefact import Artefact
from exporter.lowering.markers import ATTENTION, CLASS_ROW
from exporter.lowering.passes.base import Linear, as_linear, insert_before, markers, replace

__all__ = ["fuse_attention"]

# [batch, tokens, 3, heads, head_dim] to [3, batch, heads, tokens, head_dim], and heads back to tokens.
SPLIT_HEADS, MERGE_HEADS = [2, 0, 3, 1, 4], [0, 2, 1, 3]

PARTS = ("query", "key", "value")


@dataclass(frozen=True)
class Packed:
    """The three parts of a packed projection, each [batch, tokens, dim]."""

    query: gs.Variable
    key: gs.Variable
    value: gs.Variable


def fuse_attention(graph: gs.Graph, artefact: Artefact) -> int:
    """Fuse every attention whose heads come straight from one packed projection.

    1. With a norm on query or key the heads are needed as they are: those blocks are left to a later pass.
    2. The projection becomes one product for each of the three parts: splitting what one product gives would
       copy it, 2 % of a model's time. A projection that is no plain linear layer is split all the same.
    3. The class row of a fused block reads the same parts, see `_fuse_class_row`.
    """
    rows = {node.inputs[0].name: node for node in markers(graph, CLASS_ROW)}
    changed = 0
    for node in list(markers(graph, ATTENTION)):
        packed = _packed(graph, node)
        merge = _merge(node.outputs[0])
        if packed is None or merge is None:
            continue
        row = rows.get(node.inputs[0].name)
        if row is not None:
            _fuse_class_row(graph, row, packed, artefact.spec.num_heads)
        _fuse(graph, node, merge, packed, artefact.spec.num_heads)
        changed += 1
    return changed


def _fuse(graph: gs.Graph, node: gs.Node, merge: gs.Node, packed: Packed, heads: int) -> None:
    name, merged = node.outputs[0].name, merge.outputs[0]
    attributes = {"q_num_heads": heads, "kv_num_heads": heads, "scale": node.attrs["scale"]}
    context = gs.Variable(name, np.float32, packed.query.shape)
    node.outputs[0].name = f"{name}/heads"
    inputs = [packed.query, packed.key, packed.value, *node.inputs[3:]]  # a mask, under a-STAR
    fused = gs.Node("Attention", f"{name}/attention", attributes, inputs)
    replace(graph, node, [fused])
    fused.outputs = [context]
    if len(merged.shape) == 2:
        # Packed tokens: the exporter joined this Reshape with the one that lays the grid flat.
        merge.inputs[0] = context
        return
    merge.outputs.clear()
    for reader in list(merged.outputs):
        reader.inputs[[each is merged for each in reader.inputs].index(True)] = context


def _fuse_class_row(graph: gs.Graph, node: gs.Node, packed: Packed, heads: int) -> None:
    """One product for all heads: the class query, spread over a block diagonal, times the keys.

    It multiplies by zeros what other heads own, a thousandth of a block's work, and moves no key.
    """
    name = node.outputs[0].name
    tokens = packed.query
    dim = int(np.asarray(tokens.shape)[-1])
    diagonal = np.kron(np.eye(heads, dtype=np.float32), np.ones(dim // heads, dtype=np.float32))
    scale = gs.Constant(f"{name}/diagonal", (node.attrs["scale"] * diagonal)[None].astype(np.float32))
    ends = [
        gs.Constant(f"{name}/{part}", np.array([n])) for part, n in (("first", 0), ("second", 1), ("axis", 1))
    ]
    query, spread, turned = (
        gs.Variable(f"{name}/{part}", np.float32) for part in ("class_query", "spread", "keys")
    )
    replace(
        graph,
        node,
        [
            gs.Node("Slice", f"{name}/take_class", inputs=[tokens, *ends], outputs=[query]),
            gs.Node("Mul", f"{name}/spread_heads", inputs=[query, scale], outputs=[spread]),
            gs.Node("Transpose", f"{name}/turn_keys", {"perm": [0, 2, 1]}, [packed.key], [turned]),
            gs.Node("MatMul", f"{name}/query_keys", inputs=[spread, turned]),
        ],
    )


def _packed(graph: gs.Graph, node: gs.Node) -> Packed | None:
    """The projection that query, key and value are slices of, in three; None where they are not."""
    sources = [_slice_of(tensor) for tensor in node.inputs[:3]]
    if any(source is None for source in sources):
        return None
    projections = {source[0].name for source in sources if source}
    if len(projections) != 1 or [source[1] for source in sources if source] != [0, 1, 2]:
        return None
    projection = sources[0][0]  # type: ignore[index]
    name, shape = node.outputs[0].name, list(projection.shape)
    parts = [gs.Variable(f"{name}/{part}", np.float32, [*shape[:-1], shape[-1] // 3]) for part in PARTS]
    linear = as_linear(projection)
    if linear is None:
        new = [gs.Node("Split", f"{name}/split", {"axis": 2, "num_outputs": 3}, [projection], parts)]
    else:
        new = [each for third, part in enumerate(parts) for each in _third(linear, third, part)]
    insert_before(graph, node, new)
    return Packed(*parts)


def _third(linear: Linear, third: int, result: gs.Variable) -> list[gs.Node]:
    """One part of a packed projection by itself."""
    weight = gs.Constant(f"{result.name}/weight", np.split(linear.weight, 3, axis=1)[third].copy())
    multiply = gs.Node("MatMul", f"{result.name}/multiply", inputs=[linear.tokens, weight], outputs=[result])
    if linear.bias is None:
        return [multiply]
    product = gs.Variable(f"{result.name}/product", np.float32, result.shape)
    multiply.outputs = [product]
    bias = gs.Constant(f"{result.name}/bias", np.split(linear.bias, 3)[third].copy())
    return [multiply, gs.Node("Add", f"{result.name}/add_bias", inputs=[product, bias], outputs=[result])]


def _slice_of(tensor: gs.Tensor) -> tuple[gs.Variable, int] | None:
    """The packed projection behind a tensor of heads, and which third it is."""
    path = []
    for op in ("Squeeze", "Slice", "Transpose", "Reshape"):
        if not tensor.inputs or tensor.inputs[0].op != op:
            return None
        path.append(tensor.inputs[0])
        tensor = path[-1].inputs[0]
    _, slice_, turn, _ = path
    if turn.attrs["perm"] != SPLIT_HEADS or not isinstance(slice_.inputs[1], gs.Constant):
        return None
    return tensor, int(slice_.inputs[1].values.item())


def _merge(context: gs.Variable) -> gs.Node | None:
    """The Reshape that ends the way back from heads to tokens, None where heads are read otherwise."""
    if len(context.outputs) != 1 or context.outputs[0].op != "Transpose":
        return None
    turn = context.outputs[0]
    readers = turn.outputs[0].outputs
    if turn.attrs["perm"] != MERGE_HEADS or len(readers) != 1 or readers[0].op != "Reshape":
        return None
    return readers[0]
