"""Keep the first patches instead of the best ones: the same counts, without the selection cost."""

import numpy as np
import onnx_graphsurgeon as gs

from exporter.artefact import Artefact
from exporter.errors import ArtefactError
from exporter.lowering.builder import Builder
from exporter.lowering.graph import rewire
from exporter.tensor_names import into_name, keep_layers, keep_name, rows_of, sizes_name, tokens_name

__all__ = ["slice_selection"]


def slice_selection(graph: gs.Graph, artefact: Artefact) -> int:
    """Replace every gather of a layer's survivors by one Slice of the prefix tokens and the first patches.

    The next cleanup removes the selection, which then has no reader. The pass needs a model as it was shipped,
    where all gathers of a layer share one index. Where tokens merge, the product that averages them becomes the
    Slice, and sizes that weigh keys become ones: the cost of merging then counts as selection cost.

    Raises:
        ArtefactError: A layer has no such index, or something else reads it.
    """
    tensors = graph.tensors()
    layers = keep_layers(tensors)
    for layer in layers:
        name = rows_of(keep_name(layer))
        readers = (list(tensors[name].outputs) if name in tensors else []) or _means(tensors, layer)
        if not readers or any(node.op not in ("GatherND", "MatMul") for node in readers):
            got = ", ".join(node.op for node in readers) or "nothing"
            raise ArtefactError(name, f"read by {got}", "read by GatherND, as star-export's passes leave it")
        ends = [
            gs.Constant(f"{name}/{part}", np.array([value], dtype=np.int64))
            for part, value in (
                ("from", 0),
                ("to", artefact.spec.num_prefix_tokens + artefact.schedule.keep[layer - 1]),
                ("along", 1),
            )
        ]
        for node in readers:
            tokens = node.inputs[node.op == "MatMul"]  # after their weights
            node.op, node.attrs, node.inputs = "Slice", {}, [tokens, *ends]
        if sizes_name(layer) in tensors:
            _all_ones(graph, tensors[sizes_name(layer)], tensors[tokens_name(layer)])
    return len(layers)


def _all_ones(graph: gs.Graph, sizes: gs.Variable, tokens: gs.Variable) -> None:
    """Write one for each of `tokens` [batch, t, dim], in place of their sizes."""
    op = Builder(graph, prefix=f"{sizes.name}/ones")
    ones = op.Expand(np.ones((1, 1), np.float32), op.Shape(tokens, start=0, end=2))
    sizes.inputs.clear()
    rewire(sizes, ones)


def _means(tensors: dict[str, gs.Tensor], layer: int) -> list[gs.Node]:
    """Return the product that merges a layer's tokens, as a list; empty where they do not merge."""
    return list(tensors[tokens_name(layer)].inputs) if into_name(layer) in tensors else []
