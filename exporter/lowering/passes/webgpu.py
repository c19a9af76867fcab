"""What ONNX Runtime's WebGPU leaves to the CPU or computes wrongly, in operators that it has; values are the same.

It was seen with version 1.27: see `tests/benchmarks/test_loaders.py`.
"""

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from exporter.artefact import Artefact
from exporter.lowering.graph import Builder, nodes_of, replace


def max_as_clip(graph: gs.Graph, _: Artefact) -> int:
    """Write Max of a tensor and a number as Clip: WebGPU has no Max."""
    changed = 0
    for node in nodes_of(graph, "Max"):
        numbers = [value for value in node.inputs if isinstance(value, gs.Constant)]
        if len(node.inputs) != 2 or len(numbers) != 1 or numbers[0].values.size != 1:
            continue
        (tensor,) = (value for value in node.inputs if value is not numbers[0])
        op = Builder(graph, node, prefix=f"{node.outputs[0].name}/web")
        replace(
            graph, node, op.Clip(tensor, numbers[0].values.reshape(()), name="clip")
        )
        changed += 1
    return changed


def logic_as_sums(graph: gs.Graph, _: Artefact) -> int:
    """Write And as a product of zeros and ones, Or as their sum: WebGPU has no Or, and broadcasts And wrongly."""
    nodes = [*nodes_of(graph, "And"), *nodes_of(graph, "Or")]
    for node in nodes:
        op = Builder(graph, node, prefix=f"{node.outputs[0].name}/web")
        first, second = (_as_numbers(op, operand) for operand in node.inputs)
        count = op.Mul(first, second) if node.op == "And" else op.Add(first, second)
        replace(graph, node, op.Cast(count, to=onnx.TensorProto.BOOL, name="holds"))
    return len(nodes)


def _as_numbers(op: Builder, marks: gs.Tensor) -> gs.Tensor:
    """Return 1.0 for what holds, and 0.0."""
    if isinstance(marks, gs.Constant):
        return gs.Constant(f"{marks.name}/numbers", marks.values.astype(np.float32))
    return op.Cast(marks, to=onnx.TensorProto.FLOAT)
