"""The fused score in fewer nodes: with one image, what a node costs to start is most of what it costs."""

import numpy as np
import onnx_graphsurgeon as gs

from exporter.artefact import Artefact
from exporter.lowering.graph import markers, producer
from exporter.lowering.markers import KEEP_TOP_K
from exporter.pruning.scores import SCORE_FLOOR

__all__ = ["LARGEST_WEIGHT", "shorten_scores"]

# Between these, a weight times any score from the floor to 1 is a normal number of float32, so that none is lost,
# and less than what `rank_prefix` lifts a prefix token to.
LEAST_WEIGHT, LARGEST_WEIGHT = float(np.finfo(np.float32).tiny) / SCORE_FLOOR, 2.0**27


def shorten_scores(graph: gs.Graph, artefact: Artefact) -> int:
    """Rewrite alpha · log(intra) + table into intra · exp(table / alpha), which has the same order.

    1. The table is made ahead of time, in float64.
    2. It is looked up by position with Gather, as the exporter's GatherND needs a further axis; where every patch
       still stands in its place it is taken as it is.
    3. The largest weight is as large as may be: order is all that counts. Where the smallest is then still too
       small for float32 the score stays a sum, log(intra) + table / alpha.

    A score of another make, with a mask in it or without a table, is left as it is.
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
    """A logarithm times one positive number, read once."""
    log, alpha = node.inputs
    if len(node.outputs[0].outputs) != 1 or not isinstance(alpha, gs.Constant):
        return False
    return producer(log, "Log") is not None and bool(alpha.values.size == 1 and alpha.values > 0)


def _is_lookup(node: gs.Node) -> bool:
    """A constant row of scores, the same for every image or looked up by position, read once."""
    if node.op not in ("Expand", "GatherND") or not isinstance(node.inputs[0], gs.Constant):
        return False
    table, index = node.inputs
    if table.values.ndim != 1 or len(node.outputs[0].outputs) != 1:
        return False
    return node.op == "Expand" or producer(index, "Unsqueeze") is not None
