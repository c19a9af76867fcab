"""Expand the intra-layer factors other than the class row: the attention received, and the dissimilarity."""

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from exporter.artefact import Artefact
from exporter.lowering.builder import Builder
from exporter.lowering.graph import markers, replace
from exporter.lowering.key_directions import write_directions
from exporter.lowering.markers import DISSIMILARITY, RECEIVED

__all__ = ["expand_factors"]

TURNED = [0, 1, 3, 2]
# Past the end of any axis, and below any finite bias.
END, LOWEST = int(np.iinfo(np.int64).max), float(np.finfo(np.float32).min)


def expand_factors(graph: gs.Graph, artefact: Artefact) -> int:
    """Expand Received to a product and its softmax's mean, Dissimilarity to the cosine to the mean direction.

    Sums over patches and channels are ReduceSum: `exporter.lowering.scoring` walks back to the first product, and
    keeps all behind it fp32.
    """
    receiving, comparing = markers(graph, RECEIVED), markers(graph, DISSIMILARITY)
    for node in receiving:
        _expand_received(graph, node)
    for node in comparing:
        _expand_dissimilarity(graph, node, artefact.spec.num_heads)
    return len(receiving) + len(comparing)


def _expand_received(graph: gs.Graph, node: gs.Node) -> None:
    """Write the mean over heads and queries of softmax(query · scale · keyᵀ + bias); padding asks nothing."""
    (query, key, *bias), stride = node.inputs, node.attrs["stride"]
    op = Builder(graph, node, prefix=node.outputs[0].name)
    if stride > 1:
        query = op.Slice(query, [0], [END], [2], [stride], name="take_queries")
    scaled = op.Mul(query, float(node.attrs["scale"]), name="scale_query")
    logits = op.MatMul(scaled, op.Transpose(key, perm=TURNED, name="turn_key"), name="query_keys")
    if not bias:
        weights = op.Softmax(logits, axis=-1, name="softmax")
        replace(graph, node, op.ReduceMean(weights, [1, 2], keepdims=0, name="mean"))
        return
    logits = op.Add(logits, op.Unsqueeze(bias[0], [1, 2]), name="add_bias")
    weights = op.ReduceMean(op.Softmax(logits, axis=-1, name="softmax"), [1], keepdims=0, name="over_heads")
    asking = op.Cast(op.Greater(bias[0], LOWEST), to=onnx.TensorProto.FLOAT, name="asking")
    if stride > 1:
        asking = op.Slice(asking, [0], [END], [1], [stride])
    shares = op.Div(asking, op.ReduceSum(asking, [1], keepdims=1), name="shares")
    shared = op.Mul(weights, op.Unsqueeze(shares, [2]), name="share")
    replace(graph, node, op.ReduceSum(shared, [1], keepdims=0, name="over_queries"))


def _expand_dissimilarity(graph: gs.Graph, node: gs.Node, heads: int) -> None:
    """Write 1 − direction · mean direction of the patches."""
    (key, *live), prefix = node.inputs, node.attrs["num_prefix_tokens"]
    op = Builder(graph, node, prefix=node.outputs[0].name)
    patches = op.Slice(write_directions(op, key, heads), [prefix], [END], [1], name="patches")
    if live:
        own = op.Cast(op.Slice(live[0], [prefix], [END], [1]), to=onnx.TensorProto.FLOAT, name="own")
        shares = op.Div(own, op.ReduceSum(own, [1], keepdims=1), name="shares")
        mean = op.ReduceSum(op.Mul(patches, op.Unsqueeze(shares, [2])), [1], keepdims=1, name="mean")
    else:
        mean = op.ReduceMean(patches, [1], keepdims=1, name="mean")
    cosine = op.ReduceSum(op.Mul(patches, mean), [2], keepdims=0, name="cosine")
    replace(graph, node, op.Sub(1.0, cosine, name="dissimilarity"))
