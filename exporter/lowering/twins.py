"""Two variants of a shipped model, made from its own graph, that let its decisions be judged.

They are the same file but for the tensors that go in and out, so what they show is what is shipped.
"""

import onnx
import onnx_graphsurgeon as gs

from exporter.errors import ArtefactError
from exporter.tensor_names import keep_layers, keep_name

__all__ = ["forced_twin", "tracing_twin"]


def tracing_twin(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the survivors of each pruning layer, `keep_NN` [batch, k] int64, as further outputs.

    Raises:
        ArtefactError: The model has no such layer.
    """
    graph = gs.import_onnx(model)
    graph.outputs += _decisions(graph)
    return gs.export_onnx(graph)


def forced_twin(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with `keep_NN` as inputs in the place of its own decisions.

    Raises:
        ArtefactError: The model has no pruning layer.
    """
    graph = gs.import_onnx(model)
    for keep in _decisions(graph):
        keep.inputs.clear()
        graph.inputs.append(keep)
    graph.cleanup().toposort()
    return gs.export_onnx(graph)


def _decisions(graph: gs.Graph) -> list[gs.Variable]:
    tensors = graph.tensors()
    layers = keep_layers(tensors)
    if not layers:
        raise ArtefactError(graph.name, "a model without pruning layers", "one that star-export pruned")
    return [tensors[keep_name(layer)] for layer in layers]
