"""An attention's mask for every query: ONNX Runtime broadcasts it over batch and heads alone."""

import numpy as np
import onnx_graphsurgeon as gs

from exporter.artefact import Artefact
from exporter.lowering.passes.base import insert_before

__all__ = ["spread_masks"]


def spread_masks(graph: gs.Graph, artefact: Artefact) -> int:
    """A mask [batch, 1, 1, keys] of an Attention node becomes [batch, 1, queries, keys].

    It runs when the queries are settled: those of dropped patches may be gone.
    """
    del artefact
    changed = 0
    masked = [each for each in graph.nodes if each.op == "Attention" and len(each.inputs) > 3]
    for node in [each for each in masked if not each.domain]:  # markers are expanded to what broadcasts
        query, mask, name = node.inputs[0], node.inputs[3], node.outputs[0].name
        queries, shape, spread = (
            gs.Variable(f"{name}/{part}", dtype)
            for part, dtype in (("queries", np.int64), ("mask_shape", np.int64), ("mask", bool))
        )
        ones, one = (
            gs.Constant(f"{name}/{part}", np.ones(n, np.int64)) for part, n in (("ones", 2), ("one", 1))
        )
        new = [
            gs.Node("Shape", f"{name}/count_queries", {"start": 1, "end": 2}, [query], [queries]),
            gs.Node("Concat", f"{name}/shape_mask", {"axis": 0}, [ones, queries, one], [shape]),
            gs.Node("Expand", f"{name}/spread_mask", inputs=[mask, shape], outputs=[spread]),
        ]
        insert_before(graph, node, new)
        node.inputs[3] = spread
        changed += 1
    return changed
