"""Move the gather of survivors as early in the block as the dropped rows have no other reader."""

from collections.abc import Callable
from dataclasses import dataclass

import onnx_graphsurgeon as gs

from exporter.artefact import Artefact
from exporter.lowering.builder import Builder
from exporter.lowering.graph import markers
from exporter.lowering.markers import DOMAIN, TAKE_TOKENS

__all__ = ["select_early"]


@dataclass(frozen=True)
class Taking:
    """One retention being moved up: its marker and the patches it keeps."""

    node: gs.Node
    keep: gs.Variable
    count: int | str | None

    def rows_of(self, op: Builder, tensor: gs.Variable) -> gs.Variable:
        """Write a marker that gathers the kept rows of a tensor."""
        attributes, shape = self.node.attrs, self.shape_of(tensor)
        return op(TAKE_TOKENS, tensor, self.keep, name="taken", shape=shape, domain=DOMAIN, **attributes)

    def shape_of(self, tensor: gs.Variable) -> list[int | str] | None:
        """Return the tensor's shape with only the kept rows."""
        if tensor.shape is None or self.count is None:
            return None
        return [tensor.shape[0], self.count, *tensor.shape[2:]]


def select_early(graph: gs.Graph, artefact: Artefact) -> int:
    """Move each TakeTokens up through the residual sum, the projection and the attention, to its queries.

    1. Each of these computes a row from the same row of its input, so gathering before or after gives the same.
    2. In attention this holds only for the query; keys and values stay whole. Dropped patches then have no
       attention row and no projection: less work than the schedule's MACs count, with the same results.
    3. The move ends at a tensor that another node reads whole, like the residual or the query that the class row
       reads: the marker goes there. A marker that cannot move stays.
    """
    del artefact
    changed = 0
    for node in markers(graph, TAKE_TOKENS):
        tokens, keep = node.inputs
        if len(tokens.outputs) == 1 and row_inputs(tokens):
            _move_up(graph, node, tokens, keep)
            changed += 1
    return changed


def _move_up(graph: gs.Graph, node: gs.Node, tokens: gs.Variable, keep: gs.Variable) -> None:
    taken = node.outputs[0]
    count = taken.shape[1] if taken.shape is not None else None
    taking = Taking(node, keep, count)
    op = Builder(graph, node, prefix=taken.name)
    open_ = [tokens]
    while open_:
        tensor = open_.pop(0)
        producer = tensor.inputs[0]
        tensor.shape = taking.shape_of(tensor)
        for index in row_inputs(tensor):
            source = producer.inputs[index]
            if len(source.outputs) == 1 and row_inputs(source):
                open_.append(source)
            else:
                producer.inputs[index] = taking.rows_of(op, source)
    producer = tokens.inputs[0]
    node.outputs.clear()
    node.inputs.clear()
    producer.outputs = [taken]


def row_inputs(tensor: gs.Tensor) -> list[int]:
    """Return the indices of the inputs that the tensor's node reads row by row; none where there are none."""
    if not tensor.inputs:
        return []
    node = tensor.inputs[0]
    rule = ROW_RULES.get(node.op)
    return rule(node) if rule is not None and not node.domain else []


def _elementwise(node: gs.Node) -> list[int]:
    """Accept tensors of one shape, and constants that are the same for every row."""
    tensors = [index for index, each in enumerate(node.inputs) if not isinstance(each, gs.Constant)]
    constants = [each for each in node.inputs if isinstance(each, gs.Constant)]
    shapes = {str(node.inputs[index].shape) for index in tensors}
    same = len(shapes) == 1 and all(_is_tokens(node.inputs[index]) for index in tensors)
    return tensors if same and all(each.values.ndim <= 1 for each in constants) else []


def _first(node: gs.Node) -> list[int]:
    """Accept tokens followed by weights: a linear layer, or a norm over channels."""
    weights = node.inputs[1:]
    plain = all(isinstance(each, gs.Constant) and each.values.ndim <= 2 for each in weights)
    over_channels = node.op != "LayerNormalization" or node.attrs.get("axis", -1) == -1
    return [0] if plain and over_channels and _is_tokens(node.inputs[0]) else []


def _query(node: gs.Node) -> list[int]:
    """Accept the query of an attention on tokens; a mask is the same for all queries, see `spread_masks`."""
    return [0] if _is_tokens(node.inputs[0]) else []


def _is_tokens(tensor: gs.Tensor) -> bool:
    return tensor.shape is not None and len(tensor.shape) == 3


ROW_RULES: dict[str, Callable[[gs.Node], list[int]]] = {
    "Add": _elementwise,
    "Mul": _elementwise,
    "Div": _elementwise,
    "MatMul": _first,
    "LayerNormalization": _first,
    "Attention": _query,
}
