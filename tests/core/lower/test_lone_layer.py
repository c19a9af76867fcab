"""The lone last layer on ONNX Runtime: the numbers of all tokens, from products of the tokens that are read."""

import onnx
import pytest
from onnx import shape_inference

from exporter.core.base.targets import (
    ONNXRUNTIME,
    ONNXRUNTIME_INT8,
    ONNXRUNTIME_OPSET17,
    Target,
)
from exporter.core.lower.pipeline import lower
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.schedule.plan import keep_everything
from tests.vits import make_vit


def last_products(model: onnx.ModelProto) -> set[int]:
    """Rows of the results of the products behind the last context: of the projection, the MLP and the head."""
    inferred = shape_inference.infer_shapes(model, data_prop=True).graph
    shapes = {
        value.name: [d.dim_value for d in value.type.tensor_type.shape.dim]
        for value in inferred.value_info
    }
    names = [
        node.output[0]
        for node in model.graph.node
        if "MatMul" in node.op_type or node.op_type == "Gemm"
    ]
    return {shapes[name][1] for name in names[-4:] if len(shapes.get(name, ())) == 3}


@pytest.mark.parametrize(
    "target",
    [ONNXRUNTIME, ONNXRUNTIME_OPSET17, ONNXRUNTIME_INT8],
    ids=lambda each: each.name,
)
def test_products_behind_the_last_attention_have_the_read_rows(target: Target) -> None:
    vit = make_vit("distilled")
    assert last_products(lower(PrunedViT(vit, keep_everything(vit.spec)), target)) <= {
        2
    }
