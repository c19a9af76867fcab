"""Replace what the choosing nodes of a graph give beside `keep_NN`, for the variant that takes `keep_NN` as input.

Such a graph comes from `choose_in_one` or `select_in_one` of `exporter.lowering.passes`. Any other graph is left as
it is.
"""

import onnx_graphsurgeon as gs

from exporter.artefact import Artefact
from exporter.lowering.builder import Builder
from exporter.lowering.graph import markers, rewire, sort_nodes
from exporter.lowering.markers import CHOOSE_BY_MASS, CHOOSE_TOP_K, SELECT_TOP_K
from exporter.lowering.passes.expand_selection import behind_prefix, prefix_rows

__all__ = ["derive_choices"]


def derive_choices(graph: gs.Graph, artefact: Artefact) -> None:
    """Compute the rows of tokens to take, and the survivors' positions, from `keep_NN` in standard operators."""
    prefix = artefact.spec.num_prefix_tokens
    prefixes: gs.Variable | None = None
    kinds = (CHOOSE_TOP_K, CHOOSE_BY_MASS, SELECT_TOP_K)
    for node in (each for kind in kinds for each in markers(graph, kind)):
        keep, beside, *positions = node.outputs
        op = Builder(graph, prefix=f"{keep.name}/given")
        if positions:
            before = node.inputs[3]
            known = op.Identity(keep) if before.is_empty() else op.GatherElements(before, keep, axis=1)
            rewire(positions[0], known)
        if node.op != CHOOSE_BY_MASS:
            if prefixes is None:
                prefixes = prefix_rows(Builder(graph, prefix="prefix"), keep, prefix)
            rewire(beside, op.Unsqueeze(behind_prefix(op, keep, prefixes, prefix), [-1]))
    sort_nodes(graph)
