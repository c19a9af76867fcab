"""Find the nodes that choose patches and those that compute the outputs: a lower precision must not change them."""

from collections.abc import Iterable, Iterator

import onnx_graphsurgeon as gs

from exporter.artefact import Artefact
from exporter.lowering.key_directions import MEAN_KEY
from exporter.tensor_names import count_name, factor_name, into_name, keep_name, ranked_name, sizes_name

__all__ = ["behind", "scoring_nodes"]

# A walk back ends at a product, whose inputs are activations, and at a size, which holds no tensor values.
ENDS = {"MatMul", "Gemm", "Attention", "Shape", "Size"}


def scoring_nodes(graph: gs.Graph, artefact: Artefact) -> frozenset[str]:
    """Return the names of the nodes from the product by which patches are scored, included, to the survivors.

    Where no product scores them, from the mean of their keys. Where tokens merge, also those from the tokens to
    each patch's survivor, and to the weights of the mean.
    """
    tensors, layers = graph.tensors(), artefact.schedule.pruning_layers
    names = [name(layer) for layer in layers for name in (keep_name, ranked_name, count_name)]
    decisions = [tensors.get(name) for name in names]
    ends = frozenset(f"{factor_name(layer)}/{MEAN_KEY}" for layer in layers)
    found = frozenset(node.name for node in behind((each for each in decisions if each is not None), ends))
    merging = tuple(f"{name(layer)}/" for layer in layers for name in (into_name, sizes_name))
    return found | {node.name for node in graph.nodes if node.name.startswith(merging)}


def behind(tensors: Iterable[gs.Tensor], ends: frozenset[str] = frozenset()) -> Iterator[gs.Node]:
    """Yield the nodes that produce the tensors, back to the nearest products and nodes `ends`, these included."""
    open_, seen = list(tensors), set()
    while open_:
        for node in open_.pop().inputs:
            if node.name in seen:
                continue
            seen.add(node.name)
            yield node
            if node.op not in ENDS and node.name not in ends:
                open_ += node.inputs
