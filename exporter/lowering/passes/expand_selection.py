"""Top-k and the token gather in standard operators, with the tie rule and ascending positions."""

import numpy as np
import onnx_graphsurgeon as gs

from exporter.lowering.markers import KEEP_TOP_K, TAKE_TOKENS
from exporter.lowering.passes.base import Facts, markers, replace

__all__ = ["expand_selection"]


def expand_selection(graph: gs.Graph, facts: Facts) -> int:
    """KeepTopK as two TopK nodes, TakeTokens as GatherND with batch_dims = 1.

    1. ONNX gives equal scores to the lower index, which is the tie rule.
    2. The second TopK, smallest first, puts the survivors in ascending position. TensorRT takes sorted = 1 alone.
    3. GatherND reads whole rows. GatherElements would carry an index as large as the tokens.
    """
    del facts
    changed = 0
    for node in markers(graph, KEEP_TOP_K):
        _expand_keep_top_k(graph, node)
        changed += 1
    for node in markers(graph, TAKE_TOKENS):
        _expand_take_tokens(graph, node)
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


def _expand_take_tokens(graph: gs.Graph, node: gs.Node) -> None:
    tokens, keep = node.inputs
    name, prefix = node.outputs[0].name, node.attrs["num_prefix_tokens"]

    def constant(part: str, values: list[int]) -> gs.Constant:
        return gs.Constant(f"{name}/{part}", np.array(values, dtype=np.int64))

    head, patches, rows, survivors = (
        gs.Variable(f"{name}/{part}", dtype)
        for part, dtype in (
            ("prefix", np.float32),
            ("patches", np.float32),
            ("rows", np.int64),
            ("survivors", np.float32),
        )
    )
    ends = [constant("first", [prefix]), constant("last", [np.iinfo(np.int64).max])]
    axis = constant("axis", [1])
    replace(
        graph,
        node,
        [
            gs.Node(
                "Slice",
                f"{name}/take_prefix",
                inputs=[tokens, constant("zero", [0]), ends[0], axis],
                outputs=[head],
            ),
            gs.Node("Slice", f"{name}/take_patches", inputs=[tokens, *ends, axis], outputs=[patches]),
            gs.Node(
                "Unsqueeze", f"{name}/rows_of", inputs=[keep, constant("last_axis", [-1])], outputs=[rows]
            ),
            gs.Node("GatherND", f"{name}/gather", {"batch_dims": 1}, [patches, rows], [survivors]),
            gs.Node("Concat", f"{name}/join", {"axis": 1}, [head, survivors]),
        ],
    )
