"""Keep the first patches in the place of the best ones: the same counts, at no cost of choosing."""

import numpy as np
import onnx_graphsurgeon as gs

from exporter.errors import ArtefactError
from exporter.lowering.passes.base import Facts
from exporter.tensor_names import keep_layers, tokens_name

__all__ = ["slice_selection"]

# Operators that move rows and compute nothing: a retention is made of these, from the tokens to those it keeps.
MOVES = {"Concat", "Gather", "GatherElements", "GatherND", "Identity"}
MOVES |= {"Reshape", "Slice", "Split", "Squeeze", "Unsqueeze"}


def slice_selection(graph: gs.Graph, facts: Facts) -> int:
    """`tokens_NN` becomes one Slice, prefix tokens and the first patches, in a model as it was shipped.

    What chose the patches is then read by nobody, and goes with the next cleanup.

    Raises:
        ArtefactError: The tokens that a layer keeps do not come from one tensor by moves alone.
    """
    tensors = graph.tensors()
    layers = keep_layers(tensors)
    for layer in layers:
        tokens = tensors[tokens_name(layer)]
        source = _source(tokens)
        tokens.inputs.clear()
        count = facts.spec.num_prefix_tokens + facts.schedule.keep[layer - 1]
        ends = [
            gs.Constant(f"{tokens.name}/{part}", np.array([value], dtype=np.int64))
            for part, value in (("from", 0), ("to", count), ("along", 1))
        ]
        graph.nodes.append(gs.Node("Slice", f"{tokens.name}/take_first", {}, [source, *ends], [tokens]))
    return len(layers)


def _source(tokens: gs.Variable) -> gs.Variable:
    """The tensor behind the moves; an index of theirs is no source, a part of a Concat is."""
    sources, open_ = {}, [tokens]
    while open_:
        tensor = open_.pop()
        node = tensor.inputs[0] if tensor.inputs else None
        if node is None or node.op not in MOVES:
            sources[tensor.name] = tensor
        else:
            open_ += node.inputs if node.op == "Concat" else node.inputs[:1]
    if len(sources) != 1 or tokens.name in sources:
        got = f"made of {', '.join(sorted(sources))}"
        raise ArtefactError(tokens.name, got, "rows of one tensor, as star-export's passes leave it")
    return sources.popitem()[1]
