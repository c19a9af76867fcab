"""The variants of a shipped model, and their files."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import pytest
import torch

from exporter.core.base.artefact import Artefact
from exporter.core.base.errors import ArtefactError
from exporter.core.base.large_onnx import LEAST_BYTES, save_onnx
from exporter.core.base.targets import ONNXRUNTIME, TENSORRT, Target
from exporter.core.base.tensor_names import keep_name
from exporter.core.lower.instrumented import (
    forced_model,
    save_instrumented,
    selection_nodes,
    slice_selection,
    sliced_model,
    tracing_model,
)
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.prune.tokens import Decision
from exporter.core.verify.onnxruntime_runner import OnnxRuntimeRunner
from tests.core.lower.models import (
    a_star,
    dense,
    lowered,
    matching,
    merging,
    operators_in,
    run,
    star,
    tome,
)
from tests.core.prune.adaptive import RATES
from tests.exhaustive import also, mark_further
from tests.vits import random_images, varied_images


def sliced(pruned: PrunedViT) -> onnx.ModelProto:
    return sliced_model(lowered(pruned))


FAMILIES = ("vit", "distilled", "registers", "qk norm", "lvvit")
MODELS: dict[str, Callable[[], PrunedViT]] = {
    **{family: partial(star, family) for family in FAMILIES},
    "merging": merging,
    "merging, weighted": partial(merging, reduce="merge-weighted"),
    "tome": tome,
    "matching": matching,
}


@pytest.mark.ort
@pytest.mark.parametrize(
    "name", mark_further([*MODELS], [*MODELS.keys() - {*FAMILIES[1:]}])
)
def test_it_computes_what_forcing_the_first_patches_does(name: str) -> None:
    """Of merging nothing is left, and every size is 1."""
    pruned = MODELS[name]()
    images = random_images(pruned.vit, 3)
    keep = {
        layer: Decision(torch.arange(pruned.schedule.keep[layer - 1]).expand(3, -1))
        for layer in pruned.schedule.pruning_layers
    }
    with torch.inference_mode():
        expected = pruned.trace(images, forced=keep).logits.numpy()
    got = run(sliced(pruned), images.numpy())["logits"]
    np.testing.assert_allclose(got, expected, atol=1e-4 * expected.std() + 1e-6)


def test_nothing_scores_or_chooses() -> None:
    variant = sliced(star())
    onnx.checker.check_model(variant)
    operators = operators_in(variant)
    extra = operators - operators_in(lowered(dense()))
    assert extra.keys() == {"Slice"}


def test_the_nodes_of_selection_are_those_that_go() -> None:
    model = lowered(star())
    names = selection_nodes(model, sliced(star()))
    operators = {node.name: node.op_type for node in model.graph.node}
    gone = Counter(operators[name] for name in names)
    assert gone["TopK"] == len(RATES)
    assert gone["Softmax"] == len(RATES)  # the class rows
    assert gone["Attention"] == gone["LayerNormalization"] == gone["Split"] == 0


def test_rows_that_something_else_reads_are_refused() -> None:
    graph = gs.import_onnx(lowered(star()))
    rows = graph.tensors()["keep_01/rows"]
    graph.nodes.append(
        gs.Node(
            "Add", "twice", inputs=[rows, rows], outputs=[gs.Variable("x", np.int64)]
        )
    )
    with pytest.raises(ArtefactError, match="keep_01"):
        slice_selection(graph, Artefact(star().vit.spec, star().schedule, ONNXRUNTIME))


@pytest.mark.ort
@pytest.mark.parametrize(
    ("make", "target"),
    [
        (star, ONNXRUNTIME),
        also(partial(star, "distilled"), ONNXRUNTIME),
        also(partial(star, "lvvit"), ONNXRUNTIME),
        (partial(star, "eva02, joined, rotary"), ONNXRUNTIME),
        (a_star, ONNXRUNTIME),
        (merging, ONNXRUNTIME),
        (partial(tome, "distilled"), ONNXRUNTIME),
        (partial(tome, "distilled"), TENSORRT),
    ],
)
def test_variants_show_and_take_the_decisions(
    make: Callable[[], PrunedViT], target: Target
) -> None:
    pruned = make()
    model, images = lowered(pruned, target), varied_images(pruned.vit, 3)
    with torch.inference_mode():
        trace = pruned.trace(images)
    shown = run(tracing_model(model), images.numpy())
    logits = run(model, images.numpy())["logits"]
    np.testing.assert_array_equal(logits, shown.pop("logits"))
    for layer, made in trace.decisions.items():
        np.testing.assert_array_equal(shown[keep_name(layer)], made.index.numpy())
    forced = forced_model(model)
    names = {value.name for value in forced.graph.input} - {"images"}
    # Without rotary positions nothing reads who stays of pairs: whom each patch joins says it all.
    assert names <= shown.keys() and (pruned.scorer.pairs or names == shown.keys())
    taken = {name: shown[name] for name in names}
    swapped = {name: np.ascontiguousarray(value[::-1]) for name, value in taken.items()}
    own = run(forced, images.numpy(), **taken)["logits"]
    other = run(forced, images.numpy(), **swapped)["logits"]
    np.testing.assert_allclose(own, trace.logits.numpy(), atol=1e-4)
    assert np.abs(other - own).max() > 1e-3  # the inputs are read


def test_a_dense_model_has_no_variants(tmp_path: Path) -> None:
    model, path = shipped(dense(), tmp_path)
    assert save_instrumented(path) == {}
    for variant in (tracing_model, forced_model, sliced_model):
        with pytest.raises(ArtefactError, match="without pruning layers"):
            variant(model)


BOTH = pytest.mark.parametrize("make", [star, a_star])


def shipped(pruned: PrunedViT, folder: Path) -> tuple[onnx.ModelProto, Path]:
    model, path = lowered(pruned), folder / "m.onnx"
    save_onnx(model, path)
    return model, path


@BOTH
@pytest.mark.ort
def test_variants_read_the_weights_of_the_shipped_file(
    make: Callable[[], PrunedViT], tmp_path: Path
) -> None:
    """No large tensor is written twice."""
    model, path = shipped(make(), tmp_path)
    content = path.read_bytes()
    weights = {tensor.name: tensor.raw_data for tensor in model.graph.initializer}
    names = save_instrumented(path)
    for name in names.values():
        variant = onnx.load(tmp_path / name, load_external_data=False)
        outside = [each for each in variant.graph.initializer if each.external_data]
        assert len(outside) > 10
        for tensor in outside:
            told = {entry.key: entry.value for entry in tensor.external_data}
            start = int(told["offset"])
            assert told["location"] == path.name
            assert content[start : start + int(told["length"])] == weights[tensor.name]
        assert all(
            len(each.raw_data) < LEAST_BYTES for each in variant.graph.initializer
        )
    images = {"images": varied_images(make().vit, 3).numpy()}
    with (
        OnnxRuntimeRunner(path) as one,
        OnnxRuntimeRunner(tmp_path / names["tracing"]) as other,
        OnnxRuntimeRunner(tmp_path / names["forced"]),
    ):
        logits = one.run(images)["logits"]
        np.testing.assert_array_equal(other.run(images)["logits"], logits)


@pytest.mark.ort
def test_static_models_for_tensorrt_have_one_of_plain_slices(tmp_path: Path) -> None:
    for pruned, roles in (
        (star(), ["tracing", "forced", "sliced"]),
        (a_star(layout="padded"), ["tracing", "forced"]),
    ):
        save_onnx(lowered(pruned, TENSORRT), tmp_path / "m.onnx")
        names = save_instrumented(tmp_path / "m.onnx")
        assert list(names) == roles
    save_onnx(lowered(star(), TENSORRT), tmp_path / "m.onnx")
    sliced = tmp_path / save_instrumented(tmp_path / "m.onnx")["sliced"]
    with OnnxRuntimeRunner(sliced) as runner:
        images = varied_images(star().vit, 3).numpy()
        assert len(runner.run({"images": images})["logits"]) == 3
    assert not {"TopK", "GatherND"} & operators_in(onnx.load(sliced)).keys()
