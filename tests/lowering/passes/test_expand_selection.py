"""The lowered top-k on the runtime: ties, order, every k."""

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.lowering.markers import DOMAIN, KEEP_TOP_K, TAKE_TOKENS
from exporter.lowering.passes.expand_selection import expand_selection
from exporter.ops.selection import keep_top_k, take_tokens
from exporter.runtimes.onnxruntime.runner import OnnxRuntimeRunner
from tests.lowering.graphs import applied


def selection(patches: int, k: int, prefix: int) -> bytes:
    """A graph of the two markers alone, expanded."""
    score = gs.Variable("score", np.float32, ["batch", patches])
    tokens = gs.Variable("tokens", np.float32, ["batch", prefix + patches, 2])
    keep, taken = (
        gs.Variable("keep", np.int64, ["batch", k]),
        gs.Variable("taken", np.float32, ["batch", prefix + k, 2]),
    )
    nodes = [
        gs.Node(KEEP_TOP_K, attrs={"k": k}, inputs=[score], outputs=[keep], domain=DOMAIN),
        gs.Node(
            TAKE_TOKENS,
            attrs={"num_prefix_tokens": prefix},
            inputs=[tokens, keep],
            outputs=[taken],
            domain=DOMAIN,
        ),
    ]
    graph = gs.Graph(nodes, [score, tokens], [keep, taken], opset=20)
    assert applied(expand_selection, graph) == 2
    model = gs.export_onnx(graph)
    model.ir_version = 10
    onnx.checker.check_model(model)
    return model.SerializeToString()


@pytest.mark.ort
@settings(max_examples=25)
@given(data=st.data())
def test_ties_go_to_the_lower_position_and_survivors_ascend(data: st.DataObject) -> None:
    patches = data.draw(st.integers(1, 40))
    k, prefix = data.draw(st.integers(1, patches)), data.draw(st.integers(0, 3))
    rows = data.draw(
        st.lists(st.lists(st.integers(0, 3), min_size=patches, max_size=patches), min_size=1, max_size=3)
    )
    score = torch.tensor(rows, dtype=torch.float32)
    tokens = torch.randn(len(rows), prefix + patches, 2)
    with OnnxRuntimeRunner(selection(patches, k, prefix), name="selection") as runner:
        results = runner.run({"score": score.numpy(), "tokens": tokens.numpy()})
    keep = keep_top_k(score, k)
    np.testing.assert_array_equal(results["keep"], keep.numpy())
    np.testing.assert_array_equal(results["taken"], take_tokens(tokens, keep, prefix).numpy())
