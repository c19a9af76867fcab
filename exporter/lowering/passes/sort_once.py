"""Remove the redundant sort of a layer's two TopK nodes: the first selects, the second orders."""

import onnx_graphsurgeon as gs

from exporter.artefact import Artefact
from exporter.lowering.graph import nodes_of
from exporter.tensor_names import ranked_name

__all__ = ["sort_once"]


def sort_once(graph: gs.Graph, artefact: Artefact) -> int:
    """Remove one sort where a TopK only orders the indices of another, whose values have no reader.

    1. The first gets `sorted` = 0: ONNX Runtime then selects in linear time, by value and then by index, so that
       the tie rule holds. TensorRT supports only sorted = 1, and OpenVINO is no faster.
    2. Where all tokens are ranked, see `rank_prefix`, the second is removed. The class token comes out first, and
       the order of the others does not matter: attention and linear layers do not depend on it, and scores are
       looked up by position. Several prefix tokens would have to keep their order; both TopK stay then.

    Under 2, which of two equal scores at the cut survives is undefined from the second pruning layer on.
    """
    single = artefact.spec.num_prefix_tokens == 1
    ranked = {ranked_name(layer) for layer in artefact.schedule.pruning_layers if single}
    pairs = [(node, node.outputs[1].outputs[0]) for node in nodes_of(graph, "TopK") if _is_sorted_again(node)]
    for choosing, sorting in pairs:
        survivors = sorting.outputs[0]
        if survivors.name in ranked:
            sorting.outputs.clear()
            choosing.outputs = [choosing.outputs[0], survivors]
        else:
            choosing.attrs["sorted"] = 0
    return len(pairs)


def _is_sorted_again(node: gs.Node) -> bool:
    if not node.attrs.get("sorted", 1):
        return False
    values, indices = node.outputs
    return not values.outputs and [reader.op for reader in indices.outputs] == ["TopK"]
