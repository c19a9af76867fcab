"""The rules that ranges are compared with: what each leaves out, and that files are made with them."""

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import pytest

from exporter.targets import OPENVINO_INT8
from tests.benchmarks.scripts import script
from tests.lowering.graphs import graph_of
from tests.lowering.models import lowered, star
from tests.vits import random_images

pytestmark = pytest.mark.ort

rules = script("range_rules.py")


@pytest.fixture(scope="module")
def wide() -> tuple[onnx.ModelProto, np.ndarray]:
    """A tensor of 240,000 values, all within 5 of 0 but for two."""
    graph = graph_of(
        "(float[b, 3, 100, 100] images) => (float[b, 3, 100, 100] y) { y = Neg (images) }", {}, opset=20
    )
    model = gs.export_onnx(graph)
    model.ir_version = 10
    images = np.random.default_rng(0).standard_normal((8, 3, 100, 100)).astype(np.float32).clip(-5, 5)
    images[0, 0, 0, 0], images[1, 0, 0, 0] = 60.0, -40.0
    return model, images


def test_minmax_is_the_whole_range(wide: tuple[onnx.ModelProto, np.ndarray]) -> None:
    assert rules.by_minmax(wide[0], ["y"], wide[1]) == {"y": (-60.0, 40.0)}


@pytest.mark.parametrize("rule", ["percentile", "entropy"])
def test_a_single_value_far_away_is_clipped(rule: str, wide: tuple[onnx.ModelProto, np.ndarray]) -> None:
    (low, high) = rules.RULES[rule](wide[0], ["y"], wide[1])["y"]
    assert -12 < low < -2 and 2 < high < 12


def test_the_file_has_the_ranges_of_the_rule() -> None:
    def steps_of(model: onnx.ModelProto) -> list[float]:
        values = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
        pairs = [node for node in model.graph.node if node.op_type == "QuantizeLinear"]
        return [float(values[node.input[1]]) for node in pairs]

    images = random_images(star().vit, 8).numpy()
    own = steps_of(lowered(star(), OPENVINO_INT8, images=images))
    with rules.ranges_by("minmax"):
        whole = steps_of(lowered(star(), OPENVINO_INT8, images=images))
    assert all(each <= most for each, most in zip(own, whole, strict=True)) and own != whole
