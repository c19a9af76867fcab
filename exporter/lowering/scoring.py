"""Find the nodes that choose patches and those that compute the outputs: a lower precision must not change them."""

from collections.abc import Collection, Iterable, Iterator, Mapping

import onnx_graphsurgeon as gs

from exporter.artefact import Artefact
from exporter.lowering.graph import Builder
from exporter.schedule.methods import reduction_named
from exporter.tensor_names import (
    class_row_name,
    count_name,
    factor_name,
    into_name,
    keep_name,
    ranked_name,
    shares_name,
    stays_name,
)

__all__ = [
    "BY_CHANNEL",
    "MEAN_KEY",
    "SHORTEST",
    "behind",
    "scoring_nodes",
    "write_directions",
    "write_mean_key",
]

# The name of the node that computes a patch's mean key.
MEAN_KEY = "mean_key"
# The name of what a class row is the sum of, where it is no matrix product.
BY_CHANNEL = "by_channel"

# Lower bound of a squared length: a key of zeros has no direction.
SHORTEST = 1e-24


def write_directions(op: Builder, key: gs.Variable, heads: int) -> gs.Variable:
    """Write the mean of the keys over heads, divided by its length: [batch, tokens, head_dim].

    `key` is [batch, heads, tokens, head_dim], or [batch, tokens, channels] as a projection gives it.
    """
    mean = write_mean_key(op, key, heads)
    squared = op.ReduceSum(op.Mul(mean, mean), [2], keepdims=1)
    return op.Div(mean, op.Sqrt(op.Max(squared, SHORTEST)), name="directions")


def write_mean_key(op: Builder, key: gs.Variable, heads: int) -> gs.Variable:
    """Write the mean of the keys over heads: [batch, tokens, head_dim]; see `write_directions`."""
    if len(key.shape) == 3:
        key = op.Reshape(key, [0, 0, heads, -1], name="heads")
        return op.ReduceMean(key, [2], keepdims=0, name=MEAN_KEY)
    return op.ReduceMean(key, [1], keepdims=0, name=MEAN_KEY)


# A walk back ends at a product, whose inputs are activations, and at a size, which holds no tensor values.
PRODUCTS, SIZES = frozenset({"MatMul", "Gemm", "Attention"}), frozenset({"Shape", "Size"})


def scoring_nodes(graph: gs.Graph, artefact: Artefact) -> frozenset[int]:
    """Return the nodes from the product by which patches are scored, included, to the survivors, each by its `id`.

    Where no product scores them, from the mean of their keys. Where tokens merge, also those from the mean of their
    keys to each patch's survivor, and to the weights of the mean.

    Raises:
        RuntimeError: A pruning layer lacks the tensor of one of its decisions.
    """
    tensors, layers = graph.tensors(), artefact.schedule.pruning_layers
    merging = layers if reduction_named(artefact.schedule.reduce).merges else ()
    keeps = [_tensor(tensors, keep_name(layer), ranked_name(layer), stays_name(layer)) for layer in layers]
    joins = [_tensor(tensors, name(layer)) for layer in merging for name in (into_name, shares_name)]
    means = [_tensor(tensors, f"{into_name(layer)}/{MEAN_KEY}") for layer in merging]
    counts = [_tensor(tensors, count_name(layer)) for layer in layers if artefact.schedule.adaptive]
    factors = (tensors.get(f"{factor_name(layer)}/{MEAN_KEY}") for layer in layers)
    rows = (tensors.get(f"{class_row_name(layer)}/{BY_CHANNEL}") for layer in layers)
    means += [tensor for tensor in (*factors, *rows) if tensor is not None]
    scored = behind([*keeps, *counts], means)
    # The product of merging is one of keys, behind their mean.
    joined = behind(joins, [*means, *keeps], SIZES)
    return frozenset(id(node) for nodes in (scored, joined) for node in nodes)


def behind(
    tensors: Iterable[gs.Tensor],
    ends: Iterable[gs.Tensor] = (),
    operators: Collection[str] = PRODUCTS | SIZES,
) -> Iterator[gs.Node]:
    """Yield the nodes that produce the tensors, back to the nearest `operators` and to `ends`, these included.

    Nodes are told apart by identity: a name may be missing, and GraphSurgeon compares nodes by content.
    """
    open_, seen = list(tensors), set()
    last = {id(node) for tensor in ends for node in tensor.inputs}
    while open_:
        for node in open_.pop().inputs:
            if id(node) in seen:
                continue
            seen.add(id(node))
            yield node
            if node.op not in operators and id(node) not in last:
                open_ += node.inputs


def _tensor(tensors: Mapping[str, gs.Tensor], *names: str) -> gs.Tensor:
    """Return the first of these tensors that there is."""
    found = [tensors[name] for name in names if name in tensors]
    if not found:
        raise RuntimeError(f"no {' or '.join(names)} in the graph of a model that needs it")
    return found[0]
