"""Replace what the choosing nodes of a graph give beside `keep_NN`, for the variant that takes `keep_NN` as input.

Such a graph comes from `exporter.lowering.passes.select_in_one`. Any other graph is left as it is.
"""

import onnx_graphsurgeon as gs

from exporter.artefact import Artefact
from exporter.lowering.builder import Builder
from exporter.lowering.graph import markers, rewire, sort_nodes
from exporter.lowering.markers import SELECT_TOP_K
from exporter.lowering.passes.expand_selection import behind_prefix, prefix_rows

__all__ = ["derive_choices"]


def derive_choices(graph: gs.Graph, artefact: Artefact) -> None:
    """Compute the rows of tokens to take from `keep_NN` in standard operators."""
    prefix = artefact.spec.num_prefix_tokens
    prefixes: gs.Variable | None = None
    for node in markers(graph, SELECT_TOP_K):
        keep, rows = node.outputs
        op = Builder(graph, prefix=f"{keep.name}/given")
        if prefixes is None:
            prefixes = prefix_rows(Builder(graph, prefix="prefix"), keep, prefix)
        rewire(rows, op.Unsqueeze(behind_prefix(op, keep, prefixes, prefix), [-1]))
    sort_nodes(graph)
