"""The best patches need no order among them where they are put in ascending position afterwards."""

import onnx_graphsurgeon as gs

from exporter.lowering.passes.base import Facts

__all__ = ["unsorted_top_k"]


def unsorted_top_k(graph: gs.Graph, facts: Facts) -> int:
    """`sorted` = 0 for each TopK whose values nobody reads and whose indices another TopK sorts.

    ONNX Runtime then selects in linear time, by value and then by index: the tie rule holds for the set. TensorRT
    takes sorted = 1 alone, which is why this is a pass of its own.
    """
    del facts
    changed = 0
    for node in graph.nodes:
        if node.op != "TopK" or not node.attrs.get("sorted", 1):
            continue
        values, indices = node.outputs
        if not values.outputs and [reader.op for reader in indices.outputs] == ["TopK"]:
            node.attrs["sorted"] = 0
            changed += 1
    return changed
