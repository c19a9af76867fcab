"""Gather rows from the tokens of the whole batch in one matrix, for runtimes with a slow GatherND."""

import onnx_graphsurgeon as gs

from exporter.artefact import Artefact
from exporter.lowering.builder import Builder
from exporter.lowering.graph import nodes_of, replace
from exporter.tensor_names import IMAGES

__all__ = ["flat_gathers"]


def flat_gathers(graph: gs.Graph, artefact: Artefact) -> int:
    """Replace GatherND with batch_dims = 1 by Reshape, Gather along the first axis, Reshape.

    Each image's index is offset by its place in the batch times its number of tokens; gathers of the same rows
    share the offset index. GatherND stays where the number of tokens is not static.
    """
    del artefact
    gathers = [node for node in nodes_of(graph, "GatherND") if _takes_counted_rows(node)]
    if not gathers:
        return 0
    places = _places_in_batch(graph, gathers[0])
    flat: dict[tuple[str, int], gs.Variable] = {}
    for node in gathers:
        (tokens, rows), (taken,) = node.inputs, node.outputs
        _, count, width = tokens.shape
        if (rows.name, count) not in flat:
            op = Builder(graph, node, prefix=f"{rows.name}/of_{count}")
            index = op.Add(rows, op.Mul(places, [count], name="offset"), name="index")
            flat[rows.name, count] = op.Reshape(index, [-1], name="flat")
        op = Builder(graph, node, prefix=taken.name)
        matrix = op.Reshape(tokens, [-1, width], name="flatten")
        picked = op.Gather(matrix, flat[rows.name, count], axis=0, name="gather")
        replace(graph, node, op.Reshape(picked, [-1, *taken.shape[1:]], name="unflatten"))
    return len(gathers)


def _takes_counted_rows(gather: gs.Node) -> bool:
    """Whether the node gathers rows within each image, with static numbers of rows."""
    counted = all(_has_static_rows(each) for each in (gather.inputs[0], gather.outputs[0]))
    return counted and gather.attrs.get("batch_dims") == 1


def _has_static_rows(tensor: gs.Variable) -> bool:
    shape = tensor.shape
    return shape is not None and len(shape) == 3 and all(isinstance(size, int) for size in shape[1:])


def _places_in_batch(graph: gs.Graph, before: gs.Node) -> gs.Variable:
    """Write the images' places in the batch, 0, 1, …: [batch, 1, 1]."""
    op = Builder(graph, before, prefix="batch")
    size = op.Squeeze(op.Shape(graph.tensors()[IMAGES], start=0, end=1, name="size"), [0], name="scalar")
    return op.Unsqueeze(op.Range(0, size, 1, name="places"), [1, 2], name="column")
