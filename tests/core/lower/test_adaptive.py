"""Lowered a-STAR: a node for a plugin, with a body for other runtimes."""

import onnx
import pytest

from exporter.core.prune.ops.onnx_functions import CDF_RETAIN
from tests.core.lower.models import a_star, lowered


@pytest.mark.parametrize("layout", ["shrinking", "packed"])
def test_one_node_a_layer_with_a_body_and_a_name_for_a_plugin(layout: str) -> None:
    pruned = a_star(layout=layout)
    model = lowered(pruned)
    nodes = [node for node in model.graph.node if node.domain == "star"]
    assert [node.op_type for node in nodes] == [CDF_RETAIN] * len(
        pruned.schedule.pruning_layers
    )
    attributes = {
        attribute.name: onnx.helper.get_attribute_value(attribute)
        for attribute in nodes[1].attribute
    }
    assert attributes == {
        "mass": pytest.approx(pruned.schedule.rates[1]),
        "widest": pruned.schedule.keep[1],
        "plugin_version": b"1",
        "plugin_namespace": b"star",
    }
    assert [(function.domain, function.name) for function in model.functions] == [
        ("star", CDF_RETAIN)
    ]
    assert [node.output[0] for node in nodes] == ["keep_01", "keep_02", "keep_04"]
