"""Tell attention how many keys an image has, in place of a mask, which costs ONNX Runtime a tenth of attention."""

import onnx_graphsurgeon as gs

from exporter.artefact import Artefact
from exporter.lowering.builder import Builder
from exporter.lowering.graph import nodes_of, producer
from exporter.lowering.markers import PACK_SURVIVORS

__all__ = ["count_keys"]

OPSET = 24  # the first whose Attention takes the number of an image's keys
NUMBER_OF_KEYS = 6  # the place of that input


def count_keys(graph: gs.Graph, artefact: Artefact) -> int:
    """Give Attention the number of keys [batch] where its mask says that these come first, and padding behind them.

    The mask is either Less(0, 1, 2, …; number), or the live places of PackSurvivors. Any other is left as it is.
    A graph that changed is one of opset 24.
    """
    del artefact
    counted = 0
    for node in nodes_of(graph, "Attention"):
        number = _number_of_keys(graph, node.inputs[3]) if len(node.inputs) > 3 else None
        if number is not None:
            empty = [gs.Variable.empty() for _ in range(3, NUMBER_OF_KEYS)]
            node.inputs = [*node.inputs[:3], *empty, number]
            counted += 1
    if counted:
        graph.opset = OPSET
        graph.import_domains = None  # None: the opset above, and the nodes' other domains
    return counted


def _number_of_keys(graph: gs.Graph, mask: gs.Tensor) -> gs.Variable | None:
    """Return the number of keys of each image; None where the mask is of another form."""
    over_heads = producer(mask, "Unsqueeze")
    if over_heads is None:
        return None
    live = over_heads.inputs[0]
    packing = producer(live, PACK_SURVIVORS)
    if packing is not None and live is packing.outputs[1]:
        return _number_packed(graph, packing)
    less = producer(live, "Less")
    column = None if less is None or not _counts_up(less.inputs[0]) else producer(less.inputs[1], "Unsqueeze")
    return column.inputs[0] if column is not None and column.inputs[1].values.tolist() == [1] else None


def _number_packed(graph: gs.Graph, packing: gs.Node) -> gs.Variable:
    """Return the sum of prefix tokens and survivors, which several attentions may read."""
    count = packing.inputs[2]
    name = f"{count.name}/keys/number"
    known = [node.outputs[0] for node in count.outputs if node.name == name]
    prefix: int = packing.attrs["num_prefix_tokens"]
    op = Builder(graph, packing, prefix=f"{count.name}/keys")
    return known[0] if known else op.Add(count, prefix, name="number", shape=count.shape)


def _counts_up(tensor: gs.Tensor) -> bool:
    """Whether the tensor is Range(0, width, 1)."""
    numbers = producer(tensor, "Range")
    if numbers is None:
        return False
    start, _, step = numbers.inputs
    constant = isinstance(start, gs.Constant) and isinstance(step, gs.Constant)
    return constant and start.values.item() == 0 and step.values.item() == 1
