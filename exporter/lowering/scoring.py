"""Which nodes of a graph choose patches, and which give the answer: what a lower precision must leave alone."""

from collections.abc import Iterable, Iterator

import onnx_graphsurgeon as gs

from exporter.artefact import Artefact
from exporter.tensor_names import count_name, keep_name, ranked_name

__all__ = ["behind", "scoring_nodes"]

# A walk back ends with a product, whose inputs are activations, and with a size, which is no number of a tensor's.
ENDS = {"MatMul", "Gemm", "Attention", "Shape", "Size"}


def scoring_nodes(graph: gs.Graph, artefact: Artefact) -> frozenset[str]:
    """Names of the nodes from the product that makes a class row, itself included, to the survivors."""
    tensors = graph.tensors()
    decisions = [
        tensors.get(name(layer))
        for layer in artefact.schedule.pruning_layers
        for name in (keep_name, ranked_name, count_name)
    ]
    return frozenset(node.name for node in behind(each for each in decisions if each is not None))


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
