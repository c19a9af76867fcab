"""Lowered a-STAR: three layouts, each the reference in any batch, and each what it says it is."""

import onnx
import pytest

from exporter.core.prune.ops.onnx_functions import CDF_RETAIN
from tests.core.lower.models import a_star, lowered, operators_in


def retention_nodes(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    return [node for node in model.graph.node if node.domain == "star"]


@pytest.mark.parametrize("layout", ["shrinking", "packed"])
def test_one_node_a_layer_with_a_body_and_a_name_for_a_plugin(layout: str) -> None:
    pruned = a_star(layout=layout)
    model = lowered(pruned)
    nodes = retention_nodes(model)
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


def test_the_padded_layout_is_static_and_standard() -> None:
    model = lowered(a_star(layout="padded"))
    assert not retention_nodes(model)
    assert not model.functions
    assert {opset.domain for opset in model.opset_import} <= {"", "com.microsoft"}
    assert not operators_in(model).keys() & {
        "NonZero",
        "Compress",
        "Loop",
        "If",
    }
