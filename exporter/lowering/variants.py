"""Derive variants of a shipped model from its own graph, to check its decisions and measure their cost.

The tracing and the forced variant differ from it only in inputs and outputs, so they show the shipped graph. Both
give survivors as patches in ascending position, those of pairs in ToMe's order; a graph that ranks tokens is
translated from and to these.
"""

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from exporter.errors import ArtefactError
from exporter.lowering.forced_choices import derive_choices
from exporter.lowering.graph import import_graph, sort_nodes
from exporter.lowering.metadata import artefact_of
from exporter.lowering.passes.slice_selection import slice_selection
from exporter.lowering.ranked_tokens import patches_for_tokens, patches_from_tokens
from exporter.tensor_names import count_name, into_name, keep_layers, keep_name

__all__ = ["forced_variant", "selection_nodes", "sliced_variant", "tracing_variant"]


def tracing_variant(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with the survivors of each pruning layer, `keep_NN` [batch, k] int64, as further outputs.

    a-STAR adds `count_NN` [batch] int64, the number of survivors in each row. Merging adds `into_NN`
    [batch, patches] int64, the survivor that each patch joins.

    Raises:
        ArtefactError: The model has no pruning layer, or star-export did not write it.
    """
    graph = _opened(model)
    patches_from_tokens(graph, artefact_of(model))
    graph.outputs += _decisions(graph)
    return gs.export_onnx(graph)


def forced_variant(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with `keep_NN`, a-STAR's `count_NN` and merging's `into_NN` as inputs for its own decisions.

    Raises:
        ArtefactError: The model has no pruning layer, or star-export did not write it.
    """
    graph = _opened(model)
    artefact = artefact_of(model)
    patches_for_tokens(graph, artefact)
    derive_choices(graph, artefact)
    for decision in _decisions(graph):
        decision.inputs.clear()
        graph.inputs.append(decision)
    sort_nodes(graph.cleanup())
    return gs.export_onnx(graph)


def sliced_variant(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with every retention replaced by a slice to the same count; nothing scores patches any more.

    Its outputs mean nothing. Its time is the cost of the token counts without the selection.

    Raises:
        ArtefactError: The model has no pruning layer, or one that is not in the form that lowering writes.
    """
    graph = _opened(model)
    slice_selection(graph, artefact_of(model))
    sort_nodes(graph.cleanup())
    return gs.export_onnx(graph)


def selection_nodes(model: onnx.ModelProto, sliced: onnx.ModelProto) -> frozenset[str]:
    """Return the names of the nodes that choose and move patches: those that the sliced variant lacks."""
    before, after = ({node.name for node in each.graph.node} for each in (model, sliced))
    return frozenset(before - after)


def _opened(model: onnx.ModelProto) -> gs.Graph:
    graph = import_graph(model)
    if not keep_layers(graph.tensors()):
        raise ArtefactError(graph.name, "a model without pruning layers", "one that star-export pruned")
    return graph


def _decisions(graph: gs.Graph) -> list[gs.Variable]:
    tensors = graph.tensors()
    layers = keep_layers(tensors)
    keeps, counts = ([tensors.get(name(layer)) for layer in layers] for name in (keep_name, count_name))
    for keep, count, layer in zip(keeps, counts, layers, strict=True):
        if count is not None:
            keep.to_variable(np.int64, ["batch", f"kept_{layer:02d}"])
            count.to_variable(np.int64, ["batch"])
    intos = [tensors.get(into_name(layer)) for layer in layers]
    return keeps + [each for each in (*counts, *intos) if each is not None]
