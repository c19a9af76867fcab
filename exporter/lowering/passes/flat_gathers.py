"""Rows of a batch taken by one Gather over all its tokens laid end to end: for runtimes slow at GatherND."""

import numpy as np
import onnx_graphsurgeon as gs

from exporter.artefact import Artefact
from exporter.lowering.passes.base import insert_before, replace
from exporter.tensor_names import IMAGES

__all__ = ["flat_gathers"]


def flat_gathers(graph: gs.Graph, artefact: Artefact) -> int:
    """GatherND with batch_dims = 1 becomes Reshape, Gather along the first axis, Reshape.

    An image's rows are counted from the first of the batch: its place in the batch times the tokens of an image is
    added to the index, once for all that takes the same rows. Where tokens are not counted it stays GatherND.
    """
    del artefact
    gathers = [node for node in graph.nodes if node.op == "GatherND" and node.attrs.get("batch_dims") == 1]
    gathers = [
        node for node in gathers if all(_is_counted(each) for each in (node.inputs[0], node.outputs[0]))
    ]
    if not gathers:
        return 0
    first = _places_in_batch(graph, gathers[0])
    flat: dict[tuple[str, int], gs.Variable] = {}
    for node in gathers:
        tokens, rows = node.inputs
        key = (rows.name, tokens.shape[1])
        if key not in flat:
            flat[key] = _flat_rows(graph, node, first)
        name, taken = node.outputs[0].name, node.outputs[0]
        matrix, picked = gs.Variable(f"{name}/matrix", np.float32), gs.Variable(f"{name}/picked", np.float32)
        new = [
            gs.Node("Reshape", f"{name}/flatten", {}, [tokens, _sizes(f"{name}/flat", -1, tokens.shape[2])]),
            gs.Node("Gather", f"{name}/gather", {"axis": 0}, [matrix, flat[key]], [picked]),
            gs.Node(
                "Reshape", f"{name}/unflatten", {}, [picked, _sizes(f"{name}/sizes", -1, *taken.shape[1:])]
            ),
        ]
        new[0].outputs = [matrix]
        replace(graph, node, new)
    return len(gathers)


def _is_counted(tensor: gs.Variable) -> bool:
    shape = tensor.shape
    return shape is not None and len(shape) == 3 and all(isinstance(size, int) for size in shape[1:])


def _sizes(name: str, *sizes: int) -> gs.Constant:
    return gs.Constant(name, np.array(sizes, dtype=np.int64))


def _places_in_batch(graph: gs.Graph, before: gs.Node) -> gs.Variable:
    """0, 1, … of the images, [batch, 1, 1]."""
    size, scalar, places, column = (
        gs.Variable(f"batch/{part}", np.int64) for part in ("size", "scalar", "places", "column")
    )
    start, step = (gs.Constant(f"batch/{part}", np.array(n)) for part, n in (("start", 0), ("step", 1)))
    images = graph.tensors()[IMAGES]
    new = [
        gs.Node("Shape", "batch/size_of", {"start": 0, "end": 1}, [images], [size]),
        gs.Node("Squeeze", "batch/as_scalar", {}, [size, _sizes("batch/first", 0)], [scalar]),
        gs.Node("Range", "batch/count", {}, [start, scalar, step], [places]),
        gs.Node("Unsqueeze", "batch/as_column", {}, [places, _sizes("batch/behind", 1, 2)], [column]),
    ]
    insert_before(graph, before, new)
    return column


def _flat_rows(graph: gs.Graph, node: gs.Node, places: gs.Variable) -> gs.Variable:
    """The index of a GatherND, [batch, k, 1], as one of the rows of all images, [batch · k]."""
    tokens, rows = node.inputs
    name, width = f"{rows.name}/of_{tokens.shape[1]}", tokens.shape[1]
    offset, index, flat = (gs.Variable(f"{name}/{part}", np.int64) for part in ("offset", "index", "flat"))
    insert_before(
        graph,
        node,
        [
            gs.Node("Mul", f"{name}/offset_of", {}, [places, _sizes(f"{name}/width", width)], [offset]),
            gs.Node("Add", f"{name}/add", {}, [rows, offset], [index]),
            gs.Node("Reshape", f"{name}/flatten", {}, [index, _sizes(f"{name}/all", -1)], [flat]),
        ],
    )
    return flat
