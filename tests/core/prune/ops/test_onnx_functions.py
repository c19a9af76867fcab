"""The local functions of ONNX."""

import numpy as np
import onnx
import pytest
from onnx import parser

from exporter.core.prune.ops.cdf_reference import cdf_retain as reference
from exporter.core.prune.ops.onnx_functions import (
    CDF_RETAIN,
    CDF_RETAIN_PADDED,
    DOMAIN,
    cdf_retain_function,
    cdf_retain_padded_function,
)
from exporter.core.verify.onnxruntime_runner import OnnxRuntimeRunner
from tests.core.prune.ops.rows import KINDS, score_rows, valid_counts

OPSET = 23
MASSES = (0.1, 0.5, float(np.float32(0.7)), 0.95, 1.0)


def model_of(mass: float) -> onnx.ModelProto:
    """One node of the operator."""
    model = parser.parse_model(
        f'<ir_version: 10, opset_import: ["": {OPSET}, "{DOMAIN}": 1]>'
        " retain (float[b, n] score, int64[b] valid_count)"
        " => (int64[b, m] keep_index, int64[b] keep_count, int64 width) { keep_index, keep_count, width ="
        f" {DOMAIN}.{CDF_RETAIN} <mass: float = {mass!r}> (score, valid_count) }}"
    )
    model.functions.append(cdf_retain_function(OPSET))
    onnx.checker.check_model(model)
    return model


@pytest.mark.ort
@pytest.mark.parametrize("mass", MASSES)
def test_keeps_what_the_reference_keeps(mass: float) -> None:
    rows = 0
    with OnnxRuntimeRunner(
        model_of(mass).SerializeToString(), name="function"
    ) as runner:
        for kind in KINDS:
            for patches in (1, 2, 9, 196, 577):
                score = score_rows(kind, 100, patches)
                for valid in valid_counts(len(score), patches):
                    got = runner.run({"score": score, "valid_count": valid})
                    for name, theirs in reference(score, valid, mass)._asdict().items():
                        np.testing.assert_array_equal(
                            got[name], theirs, err_msg=f"{kind}, {patches}"
                        )
                    rows += len(score)
    assert rows == 8000  # times five masses: 40,000 rows


@pytest.mark.ort
@pytest.mark.parametrize("counting", [True, False])
@pytest.mark.parametrize("patches", [1, 2, 9, 196])
def test_the_padded_forms_keep_what_the_reference_keeps(
    patches: int, counting: bool
) -> None:
    model = parser.parse_model(
        f'<ir_version: 8, opset_import: ["": {OPSET}, "{DOMAIN}": 1]>'
        f" counted (float[b, {patches}] score, int64[b] valid) => (int64[b, {patches}] index, int64[b] count)"
        f" {{ index, count = {DOMAIN}.{CDF_RETAIN_PADDED} <mass = 0.7, width = [{patches}]> (score, valid) }}"
    )
    model.functions.append(cdf_retain_padded_function(OPSET, counting=counting))
    with OnnxRuntimeRunner(model.SerializeToString(), name="counted") as runner:
        for kind in KINDS:
            score = score_rows(kind, 100, patches)
            for valid in valid_counts(len(score), patches):
                expected = reference(score, valid, float(np.float32(0.7)))
                got = runner.run({"score": score, "valid": valid})
                np.testing.assert_array_equal(
                    got["count"], expected.keep_count, err_msg=kind
                )
                width = expected.keep_index.shape[1]
                np.testing.assert_array_equal(
                    got["index"][:, :width], expected.keep_index, err_msg=kind
                )
