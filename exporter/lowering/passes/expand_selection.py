"""Top-k and the token gather in standard operators, with the tie rule and ascending positions."""

import numpy as np
import onnx_graphsurgeon as gs

from exporter.artefact import Artefact
from exporter.lowering.markers import KEEP_TOP_K, TAKE_TOKENS
from exporter.lowering.passes.base import insert_before, markers, replace
from exporter.tensor_names import rows_of

__all__ = ["behind_prefix", "expand_selection", "prefix_rows"]


def expand_selection(graph: gs.Graph, artefact: Artefact) -> int:
    """KeepTopK as two TopK nodes, TakeTokens as GatherND with batch_dims = 1.

    1. ONNX gives equal scores to the lower index, which is the tie rule.
    2. The second TopK, smallest first, puts the survivors in ascending position. TensorRT takes sorted = 1 alone.
    3. GatherND reads whole rows. GatherElements would carry an index as large as the tokens.
    4. The prefix tokens stand in the index, as rows of their own: to cut them off and to put them back would copy
       all tokens twice. All that takes the same patches shares one index.
    """
    del artefact
    changed = 0
    for node in markers(graph, KEEP_TOP_K):
        _expand_keep_top_k(graph, node)
        changed += 1
    rows: dict[str, gs.Variable] = {}
    prefixes: gs.Variable | None = None
    for node in markers(graph, TAKE_TOKENS):
        keep, prefix = node.inputs[1], node.attrs["num_prefix_tokens"]
        if keep.name not in rows:
            tokens = keep
            if prefix:
                prefixes = prefix_rows(graph, node, keep, prefix) if prefixes is None else prefixes
                tokens = behind_prefix(graph, node, keep, prefixes, prefix)
            rows[keep.name] = _column(graph, node, tokens, rows_of(keep.name))
        gather = gs.Node("GatherND", f"{node.outputs[0].name}/gather", {"batch_dims": 1})
        gather.inputs = [node.inputs[0], rows[keep.name]]
        replace(graph, node, [gather])
        changed += 1
    return changed


def _expand_keep_top_k(graph: gs.Graph, node: gs.Node) -> None:
    (score,) = node.inputs
    name = node.outputs[0].name
    k = gs.Constant(f"{name}/k", np.array([node.attrs["k"]], dtype=np.int64))
    best, order = gs.Variable(f"{name}/best", np.float32), gs.Variable(f"{name}/order", np.int64)
    by_score = gs.Node(
        "TopK", f"{name}/by_score", {"axis": 1, "largest": 1, "sorted": 1}, [score, k], [best, order]
    )
    by_position = gs.Node("TopK", f"{name}/by_position", {"axis": 1, "largest": 0, "sorted": 1}, [order, k])
    replace(graph, node, [by_score, by_position])
    by_position.outputs.append(gs.Variable(f"{name}/rank", np.int64))


def prefix_rows(graph: gs.Graph, before: gs.Node, keep: gs.Variable, prefix: int) -> gs.Variable:
    """0, 1, … for the prefix tokens of every image, as many as `keep` has rows: [batch, prefix]."""
    batch, shape, rows = (gs.Variable(f"prefix/{part}", np.int64) for part in ("batch", "shape", "rows"))
    count = gs.Constant("prefix/count", np.array([prefix]))
    indices = gs.Constant("prefix/indices", np.arange(prefix)[None])
    new = [
        gs.Node("Shape", "prefix/batch_of", {"start": 0, "end": 1}, [keep], [batch]),
        gs.Node("Concat", "prefix/shape_of", {"axis": 0}, [batch, count], [shape]),
        gs.Node("Expand", "prefix/repeat", inputs=[indices, shape], outputs=[rows]),
    ]
    insert_before(graph, before, new)
    return rows


def behind_prefix(
    graph: gs.Graph, before: gs.Node, keep: gs.Variable, prefixes: gs.Variable, prefix: int
) -> gs.Variable:
    """Rows of tokens, [batch, prefix + k]: the prefix tokens, and the kept patches counted behind them."""
    name = rows_of(keep.name)
    shift = gs.Constant(f"{name}/prefix", np.array(prefix))
    shifted, joined = (gs.Variable(f"{name}/{part}", np.int64) for part in ("shifted", "joined"))
    new = [
        gs.Node("Add", f"{name}/shift", inputs=[keep, shift], outputs=[shifted]),
        gs.Node("Concat", f"{name}/join", {"axis": 1}, [prefixes, shifted], [joined]),
    ]
    insert_before(graph, before, new)
    return joined


def _column(graph: gs.Graph, before: gs.Node, rows: gs.Variable, name: str) -> gs.Variable:
    """The index of GatherND, [batch, rows, 1]."""
    column = gs.Variable(name, np.int64)
    last = gs.Constant(f"{name}/last_axis", np.array([-1]))
    insert_before(graph, before, [gs.Node("Unsqueeze", f"{name}/column", {}, [rows, last], [column])])
    return column
