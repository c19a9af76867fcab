"""Keep the first patches in the place of the best ones: the same counts, at no cost of choosing."""

import numpy as np
import onnx_graphsurgeon as gs

from exporter.artefact import Artefact
from exporter.errors import ArtefactError
from exporter.tensor_names import keep_layers, keep_name, rows_of

__all__ = ["slice_selection"]


def slice_selection(graph: gs.Graph, artefact: Artefact) -> int:
    """Every gather of a layer's survivors becomes one Slice, prefix tokens and the first patches.

    What chose the patches is then read by nobody, and goes with the next cleanup. It works on a model as it was
    shipped, where all gathers of a layer share one index.

    Raises:
        ArtefactError: A layer has no such index, or something else reads it.
    """
    tensors = graph.tensors()
    layers = keep_layers(tensors)
    for layer in layers:
        name = rows_of(keep_name(layer))
        readers = list(tensors[name].outputs) if name in tensors else []
        if not readers or any(node.op != "GatherND" for node in readers):
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
            node.op, node.attrs = "Slice", {}
            node.inputs = [node.inputs[0], *ends]
    return len(layers)
