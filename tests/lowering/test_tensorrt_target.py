"""The TensorRT target, as far as ONNX Runtime and the graph can check it."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import onnx
import pytest

from exporter.errors import ModelError
from exporter.evaluation.parity.reference import check
from exporter.lowering import pipeline
from exporter.lowering.variants import save_variants, selection_nodes, sliced_variant
from exporter.pruning.pruned_vit import PrunedViT
from exporter.runtimes.tensorrt.plugin_library import calls_plugin
from exporter.targets import TENSORRT, TENSORRT_FP16, TENSORRT_PLUGIN_FP16
from exporter.tensor_names import TRACING, context_name
from tests.lowering.models import a_star, dense, lowered, merging, pruned_of, star
from tests.pruning.adaptive import RATES
from tests.vits import random_images

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
    assert [(each.domain, each.version) for each in model.opset_import] == [("", 20)]
    assert not model.functions
    assert not {node.op_type for node in model.graph.node} & NOT_FOR_TENSORRT
    by_name = {node.name: node for node in model.graph.node}
    for block in range(1, make().vit.spec.depth + 1):
        softmax = by_name[f"{context_name(block)}/softmax"]
        readers = [node.op_type for node in model.graph.node if softmax.output[0] in node.input]
        assert readers == ["MatMul"]
    for node in model.graph.node:
        if node.op_type == "TopK":
            attributes = {
                each.name: onnx.helper.get_attribute_value(each) for each in node.attribute
            }
            assert attributes.get("sorted", 1) == 1


@pytest.mark.ort
@pytest.mark.parametrize(
    ("make", "fewer"),
    [(star, 0), (lambda: star("distilled"), 1), (lambda: star("dinov3"), 3), (merging, 1)],
    ids=["vit", "two prefix tokens", "rotary", "merging"],
)
def test_the_form_with_the_selection_in_one_node(
    make: Callable[[], PrunedViT], fewer: int
) -> None:
    """Where the one prefix token can be ranked, the standard form is as short. Merging reads no rows."""
    pruned = make()
    model, plain = lowered(pruned, TENSORRT_PLUGIN_FP16), lowered(pruned, TENSORRT_FP16)
    assert [(each.domain, each.name) for each in model.functions] == [("star", "SelectTopK")]
    assert [node.op_type for node in model.graph.node if node.domain] == ["SelectTopK"] * len(
        RATES
    )
    assert len(plain.graph.node) - len(model.graph.node) >= fewer * len(RATES)
    report = check(pruned, model, random_images(pruned.vit, 16).numpy())
    assert report.passed, report.checks


@pytest.mark.parametrize("make", [star, merging], ids=["star", "merging"])
def test_a_selection_in_one_node_can_be_sliced_away(make: Callable[[], PrunedViT]) -> None:
    model, plain = (lowered(make(), target) for target in (TENSORRT_PLUGIN_FP16, TENSORRT_FP16))
    sliced = sliced_variant(model)
    assert {node.name for node in model.graph.node if node.domain} <= selection_nodes(
        model, sliced
    )
    operators = (
        Counter(node.op_type for node in each.graph.node)
        for each in (sliced, sliced_variant(plain))
    )
    assert next(operators) == next(operators)


@pytest.mark.parametrize(
    ("make", "calling"),
    [
        (star, {"", TRACING}),
        (lambda: pruned_of(star().vit, scorer="pairs", reduce="merge"), set()),
        (dense, set()),
    ],
    ids=["star", "pairs", "dense"],
)
def test_the_plugin_is_needed_where_a_node_calls_it(
    tmp_path: Path, make: Callable[[], PrunedViT], calling: set[str]
) -> None:
    """Pairs have no top-k, and the other variants do not choose."""
    path = tmp_path / "m.onnx"
    pipeline.save_onnx(lowered(make(), TENSORRT_PLUGIN_FP16), path)
    files = {"": path.name, **save_variants(path)}
    assert {role for role, name in files.items() if calls_plugin(tmp_path / name)} == calling
