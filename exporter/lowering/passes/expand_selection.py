"""Expand top-k and the token gather into standard operators, with the tie rule and ascending positions."""

import numpy as np
import onnx_graphsurgeon as gs

from exporter.artefact import Artefact
from exporter.lowering.builder import Builder
from exporter.lowering.graph import markers, replace
from exporter.lowering.markers import KEEP_TOP_K, SELECT_TOP_K, TAKE_TOKENS
from exporter.tensor_names import rows_of

__all__ = ["behind_prefix", "expand_selection", "prefix_rows"]


def expand_selection(graph: gs.Graph, artefact: Artefact) -> int:
    """Expand KeepTopK to two TopK nodes, and TakeTokens to GatherND with batch_dims = 1.

    1. ONNX ranks the lower index first among equal scores; that is the tie rule.
    2. The second TopK, smallest first, sorts the survivors by position. TensorRT supports only sorted = 1.
    3. GatherND reads whole rows. GatherElements would need an index as large as the tokens.
    4. The index includes the rows of the prefix tokens: splitting them off and concatenating them again would copy
       all tokens twice. All gathers of the same patches share one index, which SelectTopK gives where it chooses.
    """
    del artefact
    chosen, taken = markers(graph, KEEP_TOP_K), markers(graph, TAKE_TOKENS)
    for node in chosen:
        _expand_keep_top_k(graph, node)
    rows = {each.outputs[0].name: each.outputs[1] for each in markers(graph, SELECT_TOP_K)}
    prefixes: gs.Variable | None = None
    for node in taken:
        (tokens, keep), prefix = node.inputs, node.attrs["num_prefix_tokens"]
        if keep.name not in rows:
            op = Builder(graph, node, prefix=rows_of(keep.name))
            kept = keep
            if prefix:
                if prefixes is None:
                    prefixes = prefix_rows(Builder(graph, node, prefix="prefix"), keep, prefix)
                kept = behind_prefix(op, keep, prefixes, prefix)
            rows[keep.name] = op.Unsqueeze(kept, [-1], name="column", out=rows_of(keep.name))
        op = Builder(graph, node, prefix=node.outputs[0].name)
        replace(graph, node, op.GatherND(tokens, rows[keep.name], batch_dims=1, name="gather"))
    return len(chosen) + len(taken)


def _expand_keep_top_k(graph: gs.Graph, node: gs.Node) -> None:
    (score,), k = node.inputs, [node.attrs["k"]]
    name = node.outputs[0].name
    op = Builder(graph, node, prefix=name)
    best, rank = (f"{name}/best", f"{name}/order"), ("", f"{name}/rank")
    _, order = op.several("TopK", score, k, outs=best, name="by_score", axis=1, largest=1, sorted=1)
    keep, _ = op.several("TopK", order, k, outs=rank, name="by_position", axis=1, largest=0, sorted=1)
    replace(graph, node, keep)


def prefix_rows(op: Builder, keep: gs.Variable, prefix: int) -> gs.Variable:
    """Write rows 0, 1, … of the prefix tokens for each row of `keep`: [batch, prefix]."""
    batch = op.Shape(keep, start=0, end=1, name="batch_of")
    return op.Expand(
        np.arange(prefix)[None], op.Concat(batch, [prefix], axis=0, name="shape_of"), name="rows"
    )


def behind_prefix(op: Builder, keep: gs.Variable, prefixes: gs.Variable, prefix: int) -> gs.Variable:
    """Write rows of tokens, [batch, prefix + k]: the prefix tokens, then the kept patches shifted by `prefix`."""
    return op.Concat(prefixes, op.Add(keep, prefix, name="shift"), axis=1, name="join")
