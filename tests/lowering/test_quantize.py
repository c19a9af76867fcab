"""INT8 by ONNX Runtime's quantizer: which layers, and what is left in fp32."""

from collections import Counter

import numpy as np
import onnx
import pytest
import torch

from exporter.errors import ModelError
from exporter.runners.choice import on_this_cpu, runner_for, why_not
from exporter.targets import ONNXRUNTIME_INT8, OPENVINO_INT8, Target
from tests.lowering.models import lowered, star
from tests.vits import random_images

pytestmark = pytest.mark.ort


@pytest.mark.parametrize("target", [ONNXRUNTIME_INT8, OPENVINO_INT8], ids=lambda target: target.name)
def test_every_linear_layer_of_a_block_is_int8_and_the_numbers_close(target: Target) -> None:
    if reason := why_not(target):
        pytest.skip(reason)
    pruned = star()
    images = random_images(pruned.vit, 16)
    model = lowered(pruned, target, images=images.numpy())
    operators = Counter(node.op_type for node in model.graph.node)
    product = {"dynamic": "MatMulInteger", "qdq": "QuantizeLinear"}[target.quantization]
    # ONNX Runtime's form has query, key and value as products of their own. One more embeds the patches.
    layers = {"onnxruntime": 6, "openvino": 4}[target.runtime]
    assert operators[product] == layers * pruned.vit.spec.depth + 1
    assert "Conv" not in operators
    with torch.inference_mode():
        expected = pruned(images).numpy()
    with runner_for(model.SerializeToString(), target, on_this_cpu(target)) as runner:
        logits = runner.run({"images": images.numpy()})["logits"]
    correlation = np.corrcoef(logits.ravel(), expected.ravel())[0, 1]
    assert correlation > 0.95


def test_weights_have_a_scale_for_each_column() -> None:
    model = lowered(star(), ONNXRUNTIME_INT8)
    values = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "MatMulInteger":
            weight, zero_point = values[node.input[1]], values[node.input[3]]
            assert weight.data_type == onnx.TensorProto.INT8
            assert list(zero_point.dims) == [weight.dims[1]]


def test_ranges_need_images() -> None:
    with pytest.raises(ModelError, match=r"INT8 \| got no images"):
        lowered(star(), OPENVINO_INT8)
