"""Bodies of nodes: there where a node calls them, inlined where no runtime knows the node."""

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import parser

from exporter.lowering.functions import with_functions
from exporter.ops.cdf_retain.onnx_function import CDF_RETAIN, DOMAIN, cdf_retain_padded_function
from exporter.ops.cdf_retain.reference import cdf_retain
from exporter.runtimes.onnxruntime.runner import OnnxRuntimeRunner

PATCHES, MASS = 6, 0.7
OWN = f"index, count, width = star.CdfRetain <mass: float = {MASS}> (score, valid)"
PADDED = f"wide, count_wide = star.CdfRetainPadded <mass: float = {MASS}, width: ints = [5]> (score, valid)"
OUTPUTS = {
    OWN: "int64[b, w] index, int64[b] count, int64 width",
    PADDED: "int64[b, 5] wide, int64[b] count_wide",
}


def model_of(*nodes: str, opset: int = 20) -> onnx.ModelProto:
    outputs = ", ".join(OUTPUTS[node] for node in nodes) or "float[b, 6] same"
    body = " ".join(nodes) or "same = Identity(score)"
    model = parser.parse_model(
        f'<ir_version: 10, opset_import: ["": {opset}, "star": 1]>'
        f" retention (float[b, {PATCHES}] score, int64[b] valid) => ({outputs}) {{ {body} }}"
    )
    for node in model.graph.node:
        node.name = f"{node.op_type}/{node.output[0]}"
    return model


def run(model: onnx.ModelProto, score: np.ndarray, valid: np.ndarray) -> dict[str, np.ndarray]:
    onnx.checker.check_model(model)
    with OnnxRuntimeRunner(model.SerializeToString(), name="retention") as runner:
        return runner.run({"score": score, "valid": valid})


@pytest.mark.ort
@settings(max_examples=20)
@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 4), min_size=PATCHES, max_size=PATCHES), st.integers(1, PATCHES)),
        min_size=1,
        max_size=4,
    )
)
def test_both_keep_what_the_reference_keeps(rows: list[tuple[list[int], int]]) -> None:
    score = np.array([row for row, _ in rows], np.float32)
    valid = np.array([count for _, count in rows])
    expected = cdf_retain(score, valid, MASS)
    found = run(with_functions(model_of(OWN, PADDED), 20, (5, 5)), score, valid)
    np.testing.assert_array_equal(found["index"], expected.keep_index)
    np.testing.assert_array_equal(found["count"], expected.keep_count)
    assert found["width"] == expected.keep_index.shape[1]
    np.testing.assert_array_equal(found["count_wide"], expected.keep_count)
    for image, count in enumerate(expected.keep_count):
        assert found["wide"][image, :count].tolist() == expected.keep_index[image, :count].tolist()
        assert not found["wide"][image, count:].any()


@pytest.mark.parametrize("opset", [20, 23])
def test_a_node_of_its_own_keeps_its_name_and_gets_one_body(opset: int) -> None:
    model = with_functions(model_of(OWN, opset=opset), opset, (5,))
    assert [(each.domain, each.name) for each in model.functions] == [(DOMAIN, CDF_RETAIN)]
    assert {each.domain: each.version for each in model.functions[0].opset_import} == {"": opset}
    assert [node.op_type for node in model.graph.node] == [CDF_RETAIN]
    told = {each.name: onnx.helper.get_attribute_value(each) for each in model.graph.node[0].attribute}
    assert told["widest"] == 5
    assert {each.domain: each.version for each in model.opset_import} == {"": opset, DOMAIN: 1}


def test_a_padded_node_becomes_standard_operators() -> None:
    model = with_functions(model_of(PADDED), 20, (5,))
    assert not model.functions
    assert {node.domain for node in model.graph.node} == {""} and len(model.graph.node) > 1
    assert [each.domain for each in model.opset_import] == [""]
    both = with_functions(model_of(OWN, PADDED), 20, (5, 5))
    assert [node.op_type for node in both.graph.node if node.domain] == [CDF_RETAIN]
    assert [each.name for each in both.functions] == [CDF_RETAIN]


def test_inlined_nodes_are_named_after_their_call_and_what_they_give() -> None:
    model, body = model_of(PADDED, OWN), cdf_retain_padded_function(20).node
    again = model.graph.node.add()
    again.CopyFrom(model.graph.node[0])
    again.name, again.output[:] = "again", ["further", "count_further"]
    nodes = {node.name: node for node in with_functions(model, 20, (5, 5, 5)).graph.node}
    assert len(nodes) == 1 + 2 * len(body)
    assert nodes["CdfRetain/index"].op_type == CDF_RETAIN
    for call, keep in (("CdfRetainPadded/wide", "wide"), ("again", "further")):
        assert [nodes[f"{call}/{each.output[0]}"].op_type for each in body] == [each.op_type for each in body]
        assert nodes[f"{call}/keep_index"].output == [keep]


def test_a_model_that_retains_nothing_loses_the_domain_alone() -> None:
    model, before = model_of(), model_of()
    changed = with_functions(model, 20, ())
    assert [(each.domain, each.version) for each in changed.opset_import] == [("", 20)]
    assert changed.graph == before.graph and not changed.functions
