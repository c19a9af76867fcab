"""The sliced variant: the same counts, the first patches, and nothing left that chooses."""

from collections import Counter
from collections.abc import Callable
from functools import partial

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import pytest
import torch

from exporter.artefact import Artefact
from exporter.errors import ArtefactError
from exporter.lowering.passes.slice_selection import slice_selection
from exporter.lowering.variants import selection_nodes, sliced_variant
from exporter.pruning.pruned_vit import PrunedViT
from exporter.pruning.tokens import Decision
from exporter.targets import ONNXRUNTIME
from tests.lowering.models import RATES, dense, lowered, merging, run, star, tome
from tests.vits import random_images


def sliced(pruned: PrunedViT) -> onnx.ModelProto:
    return sliced_variant(lowered(pruned))


MODELS: dict[str, Callable[[], PrunedViT]] = {
    **{family: partial(star, family) for family in ("vit", "distilled", "registers", "qk norm", "lvvit")},
    "merging": merging,
    "merging, weighted": partial(merging, reduce="merge-weighted"),
    "tome": tome,
}


@pytest.mark.ort
@pytest.mark.parametrize("name", MODELS)
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
    operators = Counter(node.op_type for node in variant.graph.node)
    extra = operators - Counter(node.op_type for node in lowered(dense()).graph.node)
    assert extra.keys() == {"Slice"}


def test_the_nodes_of_selection_are_those_that_go() -> None:
    model = lowered(star())
    names = selection_nodes(model, sliced(star()))
    operators = {node.name: node.op_type for node in model.graph.node}
    gone = Counter(operators[name] for name in names)
    assert gone["TopK"] == len(RATES)
    assert gone["Softmax"] == len(RATES)  # the class rows
    assert gone["Attention"] == gone["LayerNormalization"] == gone["Split"] == 0


def test_a_model_without_pruning_layers_has_none() -> None:
    with pytest.raises(ArtefactError, match="without pruning layers"):
        sliced(dense())


def test_rows_that_something_else_reads_are_refused() -> None:
    graph = gs.import_onnx(lowered(star()))
    rows = graph.tensors()["keep_01/rows"]
    graph.nodes.append(gs.Node("Add", "twice", inputs=[rows, rows], outputs=[gs.Variable("x", np.int64)]))
    with pytest.raises(ArtefactError, match="keep_01"):
        slice_selection(graph, Artefact(star().vit.spec, star().schedule, ONNXRUNTIME))
