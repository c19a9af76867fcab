"""The whole lowering."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import parser

from exporter.artefact import Artefact
from exporter.data.pixels import normalise
from exporter.errors import ModelError
from exporter.lowering import pipeline
from exporter.lowering.pipeline import lower, lower_each, save_onnx, with_functions
from exporter.lowering.verify import artefact_of
from exporter.models.registry import describe
from exporter.models.request import ModelRequest
from exporter.ops.cdf_reference import Retained, cdf_retain
from exporter.ops.onnx_functions import CDF_RETAIN, DOMAIN, cdf_retain_padded_function
from exporter.pruning.pruned_vit import PrunedViT
from exporter.runtimes.onnxruntime_runner import OnnxRuntimeRunner
from exporter.schedule.plan import keep_everything
from exporter.targets import ONNXRUNTIME, ONNXRUNTIME_FP16, TENSORRT
from exporter.vocabulary import InputKind
from tests.lowering.models import biased_vit, dense, exported, lowered, pruned_of, run, star
from tests.pruning.adaptive import RATES

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


def run_once(model: onnx.ModelProto, score: np.ndarray, valid: np.ndarray) -> dict[str, np.ndarray]:
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
def test_all_forms_keep_what_the_reference_keeps(rows: list[tuple[list[int], int]]) -> None:
    score = np.array([row for row, _ in rows], np.float32)
    valid = np.array([count for _, count in rows])
    expected = cdf_retain(score, valid, MASS)
    for counting in (False, True):
        model = with_functions(model_of(OWN, PADDED), 20, (5, 5), counting=counting)
        assert_kept(run_once(model, score, valid), expected)


def assert_kept(found: Mapping[str, np.ndarray], expected: Retained) -> None:
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


def test_the_graph_prunes_where_the_schedule_does() -> None:
    model = lowered(star())
    operators = Counter(node.op_type for node in model.graph.node)
    assert operators["TopK"] == len(RATES)
    assert {node.domain for node in model.graph.node} == {""}
    assert "GatherElements" not in {n.op_type for n in model.graph.node if "tokens" in n.output[0]}
    names = {name for node in model.graph.node for name in node.output}
    assert {"keep_01/rows", "keep_02/rows", "keep_04/rows", "tokens_01", "context_03"} <= names
    assert "keep_03/rows" not in names


def test_the_dense_graph_scores_nothing() -> None:
    model = lowered(dense())
    operators = Counter(node.op_type for node in model.graph.node)
    assert operators["TopK"] == operators["GatherND"] == 0
    assert operators["Softmax"] == 0
    assert operators["Attention"] == dense().vit.spec.depth


def test_every_size_but_the_batch_is_static() -> None:
    model = onnx.shape_inference.infer_shapes(lowered(star()), data_prop=True)
    for value in (*model.graph.value_info, *model.graph.input, *model.graph.output):
        dynamic = [d.dim_param for d in value.type.tensor_type.shape.dim if not d.HasField("dim_value")]
        # Linear layers see the tokens of all images as one matrix.
        assert len(dynamic) <= 1 and all(size.split("*")[0] == "batch" for size in dynamic), value.name


@pytest.mark.ort
def test_uint8_input_holds_the_normalisation() -> None:
    pruned = star()
    pixels = np.random.default_rng(0).integers(0, 256, (2, 3, 32, 32), dtype=np.uint8)
    images = normalise(pixels, pruned.vit.spec.preprocessing)
    with torch.inference_mode():
        expected = pruned(torch.from_numpy(images)).numpy()
    model = lowered(pruned, input_kind=InputKind.UINT8)
    assert model.graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.UINT8
    np.testing.assert_allclose(run(model, pixels)["logits"], expected, atol=1e-4)


def test_metadata_says_what_the_file_is() -> None:
    pruned = star()
    artefact = artefact_of(lowered(pruned, TENSORRT))
    expected = Artefact(pruned.vit.spec, pruned.schedule, TENSORRT, weights_sha256=pruned.vit.weights_sha256)
    assert artefact == expected
    assert artefact.method == "star"


def test_the_same_model_gives_the_same_bytes_without_a_path(tmp_path: Path) -> None:
    save_onnx(lower(pruned_of(biased_vit()), ONNXRUNTIME), tmp_path / "a.onnx")
    save_onnx(lowered(star()), tmp_path / "b.onnx")
    content = (tmp_path / "a.onnx").read_bytes()
    assert content == (tmp_path / "b.onnx").read_bytes()
    assert b".py" not in content
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.onnx", "b.onnx"]


def test_targets_of_one_opset_share_an_export_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    targets, opsets = (ONNXRUNTIME, TENSORRT, ONNXRUNTIME_FP16, ONNXRUNTIME), list[int]()

    def to_onnx(pruned: PrunedViT, opset: int) -> onnx.ModelProto:
        opsets.append(opset)
        return exported(pruned, opset)

    monkeypatch.setattr(pipeline, "to_onnx", to_onnx)
    models = list(lower_each(star(), targets))
    assert opsets == [23, 20]
    assert models == [lowered(star(), target) for target in targets]


def test_a_model_that_one_file_cannot_hold_is_refused_before_the_export() -> None:
    vit = describe(ModelRequest("vit_giant_patch14_dinov2", num_classes=10))
    with pytest.raises(ModelError, match=r"4\.\d GB of weights \| need less than 2 GB"):
        lower(PrunedViT(vit, keep_everything(vit.spec)), ONNXRUNTIME)
