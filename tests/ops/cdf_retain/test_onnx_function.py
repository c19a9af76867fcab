"""The ONNX function on ONNX Runtime against the reference, with a width that follows the batch."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from exporter.ops.cdf_retain.onnx_function import CDF_RETAIN, DOMAIN, PLUGIN_ATTRIBUTES, cdf_retain_function
from exporter.ops.cdf_retain.reference import cdf_retain as reference
from exporter.runtimes.onnxruntime.runner import OnnxRuntimeRunner
from tests.ops.cdf_retain.rows import KINDS, score_rows, valid_counts

OPSET = 23
MASSES = (0.1, 0.5, float(np.float32(0.7)), 0.95, 1.0)


def model_of(mass: float) -> onnx.ModelProto:
    """One node of the operator."""
    outputs = [("keep_index", ["b", "m"]), ("keep_count", ["b"]), ("width", [])]
    node = helper.make_node(
        CDF_RETAIN,
        ["score", "valid_count"],
        [name for name, _ in outputs],
        domain=DOMAIN,
        mass=mass,
        **PLUGIN_ATTRIBUTES,
    )
    graph = helper.make_graph(
        [node],
        "retain",
        [
            helper.make_tensor_value_info("score", TensorProto.FLOAT, ["b", "n"]),
            helper.make_tensor_value_info("valid_count", TensorProto.INT64, ["b"]),
        ],
        [helper.make_tensor_value_info(name, TensorProto.INT64, shape) for name, shape in outputs],
    )
    imports = [helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, 1)]
    model = helper.make_model(
        graph, functions=[cdf_retain_function(OPSET)], opset_imports=imports, ir_version=10
    )
    onnx.checker.check_model(model)
    return model


@pytest.mark.ort
@pytest.mark.parametrize("mass", MASSES)
def test_keeps_what_the_reference_keeps(mass: float) -> None:
    rows = 0
    with OnnxRuntimeRunner(model_of(mass).SerializeToString(), name="function") as runner:
        for kind in KINDS:
            for patches in (1, 2, 9, 196, 577):
                score = score_rows(kind, 100, patches)
                for valid in valid_counts(len(score), patches):
                    got = runner.run({"score": score, "valid_count": valid})
                    for name, theirs in reference(score, valid, mass)._asdict().items():
                        np.testing.assert_array_equal(got[name], theirs, err_msg=f"{kind}, {patches}")
                    rows += len(score)
    assert rows == 7000  # times five masses: 35,000 rows


@pytest.mark.ort
def test_the_width_follows_the_batch() -> None:
    with OnnxRuntimeRunner(model_of(0.5).SerializeToString(), name="function") as runner:
        for rows, width in (([[8, 1, 1, 1]], 1), ([[8, 1, 1, 1], [1, 1, 1, 1]], 2)):
            score = np.array(rows, np.float32)
            got = runner.run({"score": score, "valid_count": np.full(len(score), 4)})
            assert got["keep_index"].shape == (len(rows), width)
            assert got["width"] == width


def test_the_unit_of_mass_is_the_references_in_float32() -> None:
    counts = np.arange(1, 4097)
    in_float = np.floor(np.float32(2**24) / counts.astype(np.float32))
    np.testing.assert_array_equal(in_float, 2**24 // counts)
