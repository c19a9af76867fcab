"""Of the two TopK that choose and put in order, the one that is not needed goes, or need not sort."""

import onnx_graphsurgeon as gs

from exporter.artefact import Artefact
from exporter.lowering.graph import nodes_of
from exporter.tensor_names import ranked_name

__all__ = ["sort_once"]


def sort_once(graph: gs.Graph, artefact: Artefact) -> int:
    """Where one TopK sorts the indices of another, whose values nobody reads, one of them sorts in vain.

    1. `sorted` = 0 for the first: ONNX Runtime then selects in linear time, by value and then by index, so that the
       tie rule holds. TensorRT takes sorted = 1 alone, and OpenVINO is no faster.
    2. Where tokens are ranked whole, see `rank_prefix`, the second goes. The class token comes out first, and the
       order of the others says nothing: attention and linear layers are the same in any, scores are looked up by
       position. With several prefix tokens their order would have to hold, and both stay.

    Under 2, which of two equal scores at the cut survives is open from the second pruning layer on.
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
