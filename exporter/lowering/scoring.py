"""Which nodes of a graph choose patches, and which give the answer: what a lower precision must leave alone."""

from collections.abc import Iterable, Iterator

import onnx_graphsurgeon as gs

from exporter.artefact import Artefact
from exporter.tensor_names import count_name, into_name, keep_name, ranked_name, sizes_name

__all__ = ["behind", "scoring_nodes"]

# A walk back ends with a product, whose inputs are activations, and with a size, which is no number of a tensor's.
ENDS = {"MatMul", "Gemm", "Attention", "Shape", "Size"}


def scoring_nodes(graph: gs.Graph, artefact: Artefact) -> frozenset[str]:
    """Names of the nodes from the product that makes a class row, itself included, to the survivors.

    Where tokens merge, also of those from the tokens to who joins whom, and to the weights of the mean.
    """
    tensors, layers = graph.tensors(), artefact.schedule.pruning_layers
    names = [name(layer) for layer in layers for name in (keep_name, ranked_name, count_name)]
    decisions = [tensors.get(name) for name in names]
    found = frozenset(node.name for node in behind(each for each in decisions if each is not None))
    merging = tuple(f"{name(layer)}/" for layer in layers for name in (into_name, sizes_name))
    return found | {node.name for node in graph.nodes if node.name.startswith(merging)}


def behind(tensors: Iterable[gs.Tensor]) -> Iterator[gs.Node]:
    """The nodes that tensors come from, back to the nearest products, these included."""
    open_, seen = list(tensors), set()
    while open_:
        for node in open_.pop().inputs:
            if node.name in seen:
                continue
            seen.add(node.name)
            yield node
            if node.op not in ENDS:
                open_ += node.inputs
