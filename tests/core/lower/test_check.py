"""The artefact in a file's metadata, and the checks of a lowered file."""

import re
from collections.abc import Callable
from dataclasses import replace

import onnx
import pytest

from exporter.core.base.artefact import artefact_of
from exporter.core.base.errors import ArtefactError, ModelError
from exporter.core.base.targets import (
    ONNXRUNTIME_FP16,
    ONNXRUNTIME_OPSET17,
    OPENVINO_BF16,
    OPENVINO_INT8,
    TENSORRT,
    TENSORRT_INT8,
    Target,
)
from exporter.core.base.vocabulary import Layout
from exporter.core.lower.check import check_graph, verify
from exporter.core.prune.pruned_vit import PrunedViT
from tests.core.lower.models import a_star, dense, lowered, star
from tests.tiny_onnx import linear_classifier


def test_a_model_of_somebody_else() -> None:
    with pytest.raises(ArtefactError, match="without star-export's metadata"):
        artefact_of(onnx.load_model_from_string(linear_classifier()))


@pytest.mark.parametrize("more", [-1, 1])
def test_another_count_names_the_tensor(more: int) -> None:
    model = lowered(star())
    artefact = artefact_of(model)
    keep = list(artefact.schedule.keep)
    keep[1] += more
    wrong = replace(artefact, schedule=replace(artefact.schedule, keep=tuple(keep)))
    with pytest.raises(
        RuntimeError, match=f"lowering of {artefact.spec.name}: .*tokens_02"
    ):
        verify(model, wrong)


def test_two_nodes_of_one_name_and_one_without() -> None:
    model = lowered(star())
    first, second, third = model.graph.node[:3]
    second.name = first.name
    third.ClearField("name")
    with pytest.raises(RuntimeError) as raised:
        verify(model, artefact_of(model))
    assert f"2 nodes are named {first.name}" in str(raised.value)
    assert f"the {third.op_type} that gives {third.output[0]} has no name" in str(
        raised.value
    )


def test_a_score_in_half_precision() -> None:
    model = lowered(star(), TENSORRT)
    (score,) = (
        node for node in model.graph.node if node.name == "keep_02/tokens/by_score"
    )
    halved, whole = (f"halved_{half}" for half in range(2))
    casts = [
        (score.input[0], halved, onnx.TensorProto.FLOAT16),
        (halved, whole, onnx.TensorProto.FLOAT),
    ]
    place = [*model.graph.node].index(score)
    for given, made, to in reversed(casts):
        cast = onnx.helper.make_node("Cast", [given], [made], name=made, to=to)
        model.graph.node.insert(place, cast)
    score.input[0] = whole
    with pytest.raises(
        RuntimeError, match=f"{halved}, of the scores, is in half precision"
    ):
        verify(model, artefact_of(model))


def test_another_number_of_classes() -> None:
    model = lowered(dense())
    artefact = artefact_of(model)
    (logits,) = artefact.spec.outputs
    other = replace(artefact.spec, outputs=(replace(logits, channels=8),))
    with pytest.raises(RuntimeError, match="logits is"):
        verify(model, replace(artefact, spec=other))


@pytest.mark.parametrize(
    "target",
    [ONNXRUNTIME_FP16, OPENVINO_BF16, OPENVINO_INT8, TENSORRT_INT8],
    ids=lambda target: target.name,
)
def test_a_target_that_forgets_its_precision_is_refused_as_it_is_exported(
    target: Target,
) -> None:
    """Else the next command refuses its file."""
    whole = tuple(name for name in target.passes if not name.startswith("to_"))
    forgetful = replace(target, passes=whole, passes_after=(), quantization="")
    said = (
        f"weights in fp32, not those of its target {target.name}, in {target.precision}"
    )
    with pytest.raises(RuntimeError, match=said):
        lowered(star(), forgetful)


def test_a_batch_that_was_baked_in() -> None:
    model = lowered(dense())
    first = model.graph.input[0].type.tensor_type.shape.dim[0]
    first.ClearField("dim_param")
    first.dim_value = 1
    with pytest.raises((RuntimeError, ModelError)):
        verify(model, artefact_of(model))


def test_an_operator_that_the_opset_lacks_is_one_line() -> None:
    """As of a network, or of a scorer, that no pass rewrites."""
    model = lowered(star(), ONNXRUNTIME_OPSET17)
    model.graph.node[-1].op_type = "Mish"
    name = re.escape(model.graph.node[-1].name)
    with pytest.raises(
        ModelError,
        match=rf"^target onnxruntime-opset17-fp32 \| got Mish {name}: No Op registered for Mish"
        r" .*\| need operators of ONNX's opset 17 \| take another target, or",
    ):
        verify(model, artefact_of(model))


@pytest.mark.parametrize("make", [star, dense, a_star], ids=["star", "dense", "a-star"])
def test_a_file_is_what_its_own_metadata_says(make: Callable[[], PrunedViT]) -> None:
    model = lowered(make())
    check_graph(model, artefact_of(model), "m.onnx")


@pytest.mark.parametrize("layout", Layout)
def test_another_layout_than_that_of_the_graph_is_refused(layout: Layout) -> None:
    model = lowered(a_star())
    artefact = artefact_of(model)
    if layout == artefact.layout:
        return
    with pytest.raises(
        ArtefactError,
        match=rf"m\.onnx \| got .* need a graph for .*, {layout}, as its metadata",
    ):
        check_graph(model, replace(artefact, layout=layout), "m.onnx")
