"""The directions of mean keys, as a runtime computes them from either form of the keys."""

import numpy as np
import onnx_graphsurgeon as gs
import pytest
import torch

from exporter.lowering.builder import Builder
from exporter.lowering.key_directions import write_directions
from exporter.ops.likeness import directions
from exporter.runtimes.onnxruntime.runner import OnnxRuntimeRunner

HEADS, TOKENS, WIDTH = 3, 5, 4


@pytest.mark.ort
@pytest.mark.parametrize("packed", [False, True], ids=["by head", "as projected"])
def test_they_are_those_of_the_operator(packed: bool) -> None:
    by_head = np.random.default_rng(0).standard_normal((2, HEADS, TOKENS, WIDTH)).astype(np.float32)
    by_head[1, :, 2] = 0.0  # a key of zeros
    given = by_head.transpose(0, 2, 1, 3).reshape(2, TOKENS, -1) if packed else by_head
    key = gs.Variable("key", np.float32, ["batch", *given.shape[1:]])
    graph = gs.Graph([], [key], [], opset=20)
    found = write_directions(Builder(graph, prefix="into_01"), key, HEADS)
    found.dtype, graph.outputs = np.dtype(np.float32), [found]
    model = gs.export_onnx(graph)
    model.ir_version = 10
    with OnnxRuntimeRunner(model.SerializeToString()) as runner:
        results = runner.run({"key": given})
    expected = directions(torch.from_numpy(by_head), 0).numpy()
    np.testing.assert_allclose(results["into_01/directions"], expected, atol=1e-6)
