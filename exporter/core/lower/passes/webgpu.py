"""What ONNX Runtime's WebGPU leaves to the CPU or computes wrongly, in operators that it has; values are the same.

It was seen with version 1.27: see `tests/benchmarks/test_loaders.py`.
"""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from exporter.core.base.artefact import Artefact
from exporter.core.lower.decisions import SIZES
from exporter.core.lower.graph import Builder, nodes_of, replace, sort_nodes
from exporter.core.lower.passes.precision import (
    Converted,
    in_precision,
    infer_dtypes,
    keep_outputs,
    onnx_type,
)

FP32, INT32, INT64 = map(np.dtype, (np.float32, np.int32, np.int64))
# ONNX's names of what holds a whole number, the best for WebGPU first.
HOLDERS = {"tensor(float)": FP32, "tensor(int32)": INT32, "tensor(int64)": INT64}
Formal: TypeAlias = onnx.defs.OpSchema.FormalParameter


def limits_as_where(graph: gs.Graph, _: Artefact) -> int:
    """Write Max and Min of two tensors as a choice between them: WebGPU has neither."""
    nodes = [*nodes_of(graph, "Max"), *nodes_of(graph, "Min")]
    pairs = [node for node in nodes if len(node.inputs) == 2]
    for node in pairs:
        first, second = node.inputs
        op = _builder(graph, node)
        below, above = (first, second) if node.op == "Max" else (second, first)
        takes_second = op.Less(below, above)
        limit = op.Where(takes_second, second, first, name="limit")
        replace(graph, node, limit)
    return len(pairs)


def _builder(graph: gs.Graph, node: gs.Node) -> Builder:
    return Builder(graph, node, prefix=f"{node.outputs[0].name}/web")


# The largest number below a half.
BELOW_HALF = float(np.nextafter(np.float32(0.5), np.float32(0)))


def round_as_floor(graph: gs.Graph, _: Artefact) -> int:
    """Write Round, ties to even, as Floor and one more where the rest is large enough: WebGPU has no Round."""
    nodes = nodes_of(graph, "Round")
    for node in nodes:
        (x,) = node.inputs
        op = _builder(graph, node)
        floor = op.Floor(x, name="whole")
        half_floor = op.Floor(op.Mul(floor, 0.5))
        even = op.Mul(half_floor, 2.0, name="even")
        is_even = op.Equal(floor, even)
        limit = op.Where(is_even, 0.5, BELOW_HALF, name="limit")
        rest = op.Sub(x, floor, name="rest")
        is_above = op.Greater(rest, limit)
        step = op.Cast(is_above, to=onnx.TensorProto.FLOAT, name="step")
        rounded = op.Add(floor, step, name="rounded")
        replace(graph, node, rounded)
    return len(nodes)


def logic_as_sums(graph: gs.Graph, _: Artefact) -> int:
    """Write And as a product of zeros and ones, Or as their sum: WebGPU has no Or, and broadcasts And wrongly."""
    nodes = [*nodes_of(graph, "And"), *nodes_of(graph, "Or")]
    for node in nodes:
        op = _builder(graph, node)
        numbers = [_as_numbers(op, marks) for marks in node.inputs]
        count = op.Mul(*numbers) if node.op == "And" else op.Add(*numbers)
        holds = op.Cast(count, to=onnx.TensorProto.BOOL, name="holds")
        replace(graph, node, holds)
    return len(nodes)


def _as_numbers(op: Builder, marks: gs.Tensor) -> gs.Tensor:
    """Return 1.0 for each mark that holds, and 0.0 for the others."""
    if isinstance(marks, gs.Constant):
        return gs.Constant(f"{marks.name}/numbers", marks.values.astype(np.float32))
    return op.Cast(marks, to=onnx.TensorProto.FLOAT)


def integers_as_floats(graph: gs.Graph, artefact: Artefact) -> int:
    """Compute whole numbers in float32, where they are exact, and return the number of results.

    WebGPU has no int64, and int32 in few operators.

    1. Sizes stay int64, and what follows from them alone: with a fixed batch, it is known before the first run.
    2. Indices are int32, and shapes and axes int64, as ONNX has them.
    3. What ONNX gives in int64 alone, as TopK's places, is looked up in a table of themselves: Gather reads it.
    4. Outputs of the model stay int64.
    """
    infer_dtypes(graph)
    nodes = list(sort_nodes(graph).nodes)  # a copy, since nodes are added
    tensors = graph.tensors()
    integers = {name for name, tensor in tensors.items() if tensor.dtype == INT64}
    variables = {name for name in integers if isinstance(tensors[name], gs.Variable)}
    numbers = variables - _sizes(nodes)
    tokens = artefact.spec.num_prefix_tokens + artefact.spec.num_patches
    converted: Converted = {}
    for node in nodes:
        schema = onnx.defs.get_schema(node.op, graph.opset)
        inputs = _with_formals(node.inputs, schema.inputs)
        results = _with_formals(node.outputs, schema.outputs)
        # A constant or a size is converted with the numbers that have its type.
        types = {
            formal.type_str
            for tensor, formal in (*inputs, *results)
            if tensor.name in numbers
        }
        for place, (tensor, formal) in enumerate(inputs):
            if tensor.name in integers and formal.type_str in types:
                holder = _holder(formal)
                node.inputs[place] = in_precision(graph, tensor, holder, converted)
        for place, (result, formal) in enumerate(results):
            if result.name not in numbers:
                continue
            result.dtype = FP32
            if _holder(formal) != FP32:
                _look_up(graph, node, place, tokens)
            elif node.op == "Cast":
                node.attrs["to"] = onnx_type(FP32)
    keep_outputs(graph, numbers, INT64)
    return len(numbers)


def _sizes(nodes: list[gs.Node]) -> set[str]:
    """Return the names of what follows from sizes alone."""
    sizes: set[str] = set()
    for node in nodes:
        variables = [value for value in node.inputs if isinstance(value, gs.Variable)]
        if node.op in SIZES or all(value.name in sizes for value in variables):
            sizes.update(result.name for result in node.outputs)
    return sizes


def _with_formals(
    tensors: list[gs.Tensor], formals: Sequence[Formal]
) -> list[tuple[gs.Tensor, Formal]]:
    """Return what ONNX says of each input, or output, of a node beside it; the last may stand for many."""
    last = len(formals) - 1
    return [(tensor, formals[min(place, last)]) for place, tensor in enumerate(tensors)]


def _holder(formal: Formal) -> np.dtype:
    """Return the dtype that holds whole numbers in a place of a node."""
    return next(dtype for name, dtype in HOLDERS.items() if name in formal.types)


def _look_up(graph: gs.Graph, node: gs.Node, place: int, tokens: int) -> None:
    """Let a table of as many numbers as there are tokens give a node's result in float32."""
    result = node.outputs[place]
    in_int64 = gs.Variable(f"{result.name}/int64", INT64, result.shape)
    node.outputs[place] = in_int64
    op = Builder(graph, prefix=f"{result.name}/web")
    table = np.arange(tokens, dtype=np.float32)
    number = op.Gather(table, in_int64, axis=0)
    number.inputs[0].outputs = [result]
