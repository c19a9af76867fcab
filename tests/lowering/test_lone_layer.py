"""The lone last layer on ONNX Runtime: the numbers of all tokens, from products of the tokens that are read."""

import numpy as np
import onnx
import pytest
from onnx import shape_inference

from exporter.lowering.pipeline import lower
from exporter.models.spec import as_it_came
from exporter.pruning.pruned_vit import PrunedViT
from exporter.records import ModelSpec, Schedule
from exporter.runtimes.onnxruntime_runner import OnnxRuntimeRunner
from exporter.schedule.plan import keep_everything, manual_schedule
from exporter.schedule.prune import Prune
from exporter.targets import ONNXRUNTIME, ONNXRUNTIME_INT8, ONNXRUNTIME_OPSET17, TARGETS, Target
from exporter.vocabulary import Method
from tests.vits import make_vit, random_images

RATES = {1: 0.8, 3: 0.7}
METHODS = (Method.STAR, Method.TOME, Method.A_STAR)


def planned(spec: ModelSpec, method: Method) -> Schedule:
    scorer = None if method is Method.TOME else "intra"
    return manual_schedule(spec, RATES, Prune(scorer, method=method))


def last_products(model: onnx.ModelProto) -> set[int]:
    """Rows of the results of the products behind the last context: of the projection, the MLP and the head."""
    inferred = shape_inference.infer_shapes(model, data_prop=True).graph
    shapes = {
        each.name: [d.dim_value for d in each.type.tensor_type.shape.dim] for each in inferred.value_info
    }
    names = [
        node.output[0] for node in model.graph.node if "MatMul" in node.op_type or node.op_type == "Gemm"
    ]
    return {shapes[name][1] for name in names[-4:] if len(shapes.get(name, ())) == 3}


@pytest.mark.parametrize("family", ["vit", "distilled", "qk norm", "eva02, joined, rotary"])
def test_numbers_are_those_of_all_tokens(family: str) -> None:
    vit = make_vit(family)
    feed = {"images": random_images(vit, 2).numpy()}
    for schedule in (keep_everything(vit.spec), *(planned(vit.spec, each) for each in METHODS)):
        given = []
        for each in (vit, as_it_came(vit)):
            model = lower(PrunedViT(each, schedule), ONNXRUNTIME).SerializeToString()
            with OnnxRuntimeRunner(model, name="ours", threads=1) as runner:
                given.append(runner.run(feed)["logits"])
        assert np.abs(given[0] - given[1]).max() <= 1e-6


@pytest.mark.parametrize(
    "target", [ONNXRUNTIME, ONNXRUNTIME_OPSET17, ONNXRUNTIME_INT8], ids=lambda each: each.name
)
def test_products_behind_the_last_attention_have_the_read_rows(target: Target) -> None:
    vit = make_vit("distilled")
    assert last_products(lower(PrunedViT(vit, keep_everything(vit.spec)), target)) <= {2}


@pytest.mark.exhaustive
@pytest.mark.parametrize("target", TARGETS.values(), ids=lambda each: each.name)
@pytest.mark.parametrize("method", METHODS)
def test_every_target_lowers_it(target: Target, method: Method) -> None:
    vit = make_vit()
    if method in target.methods:
        layout = target.layouts[0]
        images = random_images(vit, 2).numpy()
        lower(PrunedViT(vit, planned(vit.spec, method), layout=layout), target, images=images)
