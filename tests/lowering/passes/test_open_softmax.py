"""No Attention node states a precision for its softmax: TensorRT's parser refuses those that do."""

from exporter.lowering.passes.half_precision import to_fp16
from exporter.lowering.passes.open_softmax import open_softmax
from tests.lowering.graphs import applied, graph_of

HEADS = "float[b, 2, 5, 3]"


def test_the_attribute_goes_and_the_rest_stays() -> None:
    graph = graph_of(
        f"({HEADS} q, {HEADS} k, {HEADS} v) => ({HEADS} y) "
        "{ x = Attention <scale = 0.7> (q, k, v) y = Attention <scale = 0.6> (x, k, v) }"
    )
    applied(to_fp16, graph)
    assert applied(open_softmax, graph) == 2
    nodes = [node for node in graph.nodes if node.op == "Attention"]
    assert [list(node.attrs) for node in nodes] == [["scale"], ["scale"]]
    assert applied(open_softmax, graph) == 0
