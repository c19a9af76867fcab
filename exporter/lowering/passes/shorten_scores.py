"""Compute the fused score in fewer nodes: at batch 1, launching a node is most of its cost."""

import numpy as np
import onnx_graphsurgeon as gs

from exporter.artefact import Artefact
from exporter.lowering.graph import markers, producer
from exporter.lowering.markers import KEEP_TOP_K
from exporter.pruning.scores import SCORE_FLOOR

__all__ = ["LARGEST_WEIGHT", "shorten_scores"]

# In this range, a weight times any score from the floor to 1 is a normal float32, so that none is lost, and it is
# less than the score that `rank_prefix` gives a prefix token.
LEAST_WEIGHT, LARGEST_WEIGHT = float(np.finfo(np.float32).tiny) / SCORE_FLOOR, 2.0**27


def shorten_scores(graph: gs.Graph, artefact: Artefact) -> int:
    """Rewrite alpha · log(intra) + table into intra · exp(table / alpha), which has the same order.

    1. The table is computed ahead of time, in float64.
    2. Gather looks it up by position; the exporter's GatherND needs a further axis. Where every patch is still in
       its place, the table is used directly.
    3. The largest weight is the largest allowed, since only the order counts. Where the smallest is then still too
       small for float32, the score stays a sum, log(intra) + table / alpha.

    A score of another form, with a mask or without a table, is left as it is.
    """
    del artefact
    changed = 0
    for node in markers(graph, KEEP_TOP_K):
        add = producer(node.inputs[0], "Add")
        if add is None:
            continue
        weighed, lookup = producer(add.inputs[0], "Mul"), producer(add.inputs[1])
        if weighed is None or lookup is None:
            continue
        if _is_weighed_log(weighed) and _is_lookup(lookup):
            _shorten(add, weighed, lookup)
            changed += 1
    return changed


def _shorten(add: gs.Node, weighed: gs.Node, lookup: gs.Node) -> None:
    log, alpha = weighed.inputs
    table = lookup.inputs[0].values.astype(np.float64) / alpha.values
    weighed.inputs.clear()
    add.inputs[0] = log
    weights = LARGEST_WEIGHT * np.exp(table - table.max())
    if weights.min() >= LEAST_WEIGHT:
        add.op, table = "Mul", weights
        add.inputs[0] = log.inputs[0].inputs[0]
    table = gs.Constant(f"{add.outputs[0].name}/table", table.astype(np.float32))
    if lookup.op == "Expand":
        add.inputs[1] = table
        return
    lookup.op, lookup.attrs = "Gather", {"axis": 0}
    lookup.inputs = [table, lookup.inputs[1].inputs[0].inputs[0]]


def _is_weighed_log(node: gs.Node) -> bool:
    """Whether the node is a logarithm times one positive number, with one reader."""
    log, alpha = node.inputs
    if len(node.outputs[0].outputs) != 1 or not isinstance(alpha, gs.Constant):
        return False
    return producer(log, "Log") is not None and bool(alpha.values.size == 1 and alpha.values > 0)


def _is_lookup(node: gs.Node) -> bool:
    """Whether the node is a constant row of scores, fixed or looked up by position, with one reader."""
    if node.op not in ("Expand", "GatherND") or not isinstance(node.inputs[0], gs.Constant):
        return False
    table, index = node.inputs
    if table.values.ndim != 1 or len(node.outputs[0].outputs) != 1:
        return False
    return node.op == "Expand" or producer(index, "Unsqueeze") is not None
