"""The function of SelectTopK on a runtime: PyTorch's survivors, and the rows that follow."""

import numpy as np
import onnx
import pytest
import torch
from onnx import parser

from exporter.ops.select_top_k import select_top_k_function
from exporter.ops.selection import keep_top_k
from exporter.runtimes.onnxruntime.runner import OnnxRuntimeRunner


@pytest.mark.ort
@pytest.mark.parametrize("opset", [17, 20, 23])
@pytest.mark.parametrize(("patches", "k", "prefix"), [(1, 1, 0), (12, 5, 1), (12, 12, 0), (300, 150, 5)])
def test_ties_go_to_the_lower_position_and_rows_start_with_the_prefix(
    opset: int, patches: int, k: int, prefix: int
) -> None:
    model = parser.parse_model(
        f'<ir_version: 8, opset_import: ["": {opset}, "star": 1]>'
        f" select (float[b, {patches}] score) => (int64[b, {k}] keep, int64[b, {prefix + k}, 1] rows)"
        f" {{ keep, rows = star.SelectTopK <k = {k}, num_prefix_tokens = {prefix}> (score) }}"
    )
    model.functions.append(select_top_k_function(opset))
    onnx.checker.check_model(model, full_check=True)
    score = np.random.default_rng(0).integers(-3, 3, (3, patches)).astype(np.float32)
    with OnnxRuntimeRunner(model.SerializeToString(), name="select") as runner:
        found = runner.run({"score": score})
    keep = keep_top_k(torch.from_numpy(score), k).numpy()
    np.testing.assert_array_equal(found["keep"], keep)
    np.testing.assert_array_equal(found["rows"][:, prefix:, 0], keep + prefix)
    np.testing.assert_array_equal(found["rows"][:, :prefix, 0], np.tile(np.arange(prefix), (3, 1)))
