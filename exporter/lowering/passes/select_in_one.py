"""Select a layer's survivors by score in one node, which TensorRT replaces by a plugin."""

import numpy as np
import onnx_graphsurgeon as gs

from exporter.artefact import Artefact
from exporter.lowering.builder import place_of
from exporter.lowering.graph import markers
from exporter.lowering.markers import DOMAIN, KEEP_TOP_K, SELECT_TOP_K
from exporter.ops.cdf_retain.onnx_function import PLUGIN_ATTRIBUTES
from exporter.tensor_names import rows_of

__all__ = ["select_in_one"]


def select_in_one(graph: gs.Graph, artefact: Artefact) -> int:
    """Replace KeepTopK by SelectTopK, which also gives the rows of tokens to take, prefix included.

    In standard operators these are two TopK, Add, Concat and Unsqueeze. A score of any form is taken; a-STAR and
    pairs have no KeepTopK.
    """
    prefix = artefact.spec.num_prefix_tokens
    found = markers(graph, KEEP_TOP_K)
    for node in found:
        (score,), (keep,), k = node.inputs, node.outputs, node.attrs["k"]
        rows = gs.Variable(rows_of(keep.name), np.int64, [keep.shape[0], prefix + k, 1])
        attributes = {"k": k, "num_prefix_tokens": prefix, **PLUGIN_ATTRIBUTES}
        node.inputs.clear()
        node.outputs.clear()
        name = f"{SELECT_TOP_K}/{keep.name}"
        chosen = gs.Node(SELECT_TOP_K, name, attributes, [score], [keep, rows], domain=DOMAIN)
        graph.nodes[place_of(node, graph.nodes)] = chosen
    return len(found)
