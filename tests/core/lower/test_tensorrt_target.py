"""The TensorRT target, as far as ONNX Runtime and the graph can check it."""

from collections.abc import Callable
from dataclasses import replace

import onnx
import pytest

from exporter.core.base.errors import ModelError
from exporter.core.base.targets import TENSORRT
from exporter.core.base.tensor_names import context_name
from exporter.core.lower import pipeline
from exporter.core.prune.pruned_vit import PrunedViT
from tests.core.lower.models import a_star, lowered, operators_in, star

# Of ONNX's operators, those that onnx-tensorrt's list of supported operators has and that a ViT needs.
NOT_FOR_TENSORRT = {"Attention", "ScatterND", "Loop", "If", "NonZero", "Compress"}


@pytest.mark.parametrize(
    ("make", "most"),
    [(star, 13), (lambda: a_star(layout="padded"), 16)],
    ids=["star", "a-star"],
)
def test_more_than_its_top_k_returns_is_refused_before_the_export(
    make: Callable[[], PrunedViT], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """STAR returns the survivors of a layer, a-STAR sorts all patches; the limit of 3840 made small."""
    monkeypatch.setattr(pipeline, "to_onnx", None)
    with pytest.raises(
        ModelError,
        match=rf"got a top-k of {most} patches \| need at most {most - 1}, the runtime",
    ):
        pipeline.lower(make(), replace(TENSORRT, largest_top_k=most - 1))
    with pytest.raises(TypeError, match="NoneType"):  # the next step is the export
        pipeline.lower(make(), replace(TENSORRT, largest_top_k=most))


@pytest.mark.parametrize(
    "make", [star, lambda: a_star(layout="padded")], ids=["star", "a-star"]
)
def test_the_graph_is_what_its_fusions_and_its_parser_want(
    make: Callable[[], PrunedViT],
) -> None:
    model = lowered(make(), TENSORRT)
    assert [(opset.domain, opset.version) for opset in model.opset_import] == [("", 20)]
    assert not model.functions
    assert not operators_in(model).keys() & NOT_FOR_TENSORRT
    by_name = {node.name: node for node in model.graph.node}
    for block in range(1, make().vit.spec.depth + 1):
        softmax = by_name[f"{context_name(block)}/softmax"]
        readers = [
            node.op_type for node in model.graph.node if softmax.output[0] in node.input
        ]
        assert readers == ["MatMul"]
    for node in model.graph.node:
        if node.op_type == "TopK":
            attributes = {
                attribute.name: onnx.helper.get_attribute_value(attribute)
                for attribute in node.attribute
            }
            assert attributes.get("sorted", 1) == 1
