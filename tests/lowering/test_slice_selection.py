"""The sliced twin: the same counts, the first patches, and nothing left that chooses."""

from collections import Counter

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import pytest
import torch

from exporter.errors import ArtefactError
from exporter.lowering.passes.base import Facts
from exporter.lowering.passes.slice_selection import slice_selection
from exporter.lowering.pipeline import lower
from exporter.lowering.twins import selection_nodes, sliced_twin
from exporter.models.base import PrunableViT
from exporter.pruning.pruned_vit import PrunedViT
from exporter.pruning.tokens import Kept
from exporter.runners.onnxruntime_runner import OnnxRuntimeRunner
from exporter.schedule.plan import ScheduleSettings, keep_everything, manual_schedule
from exporter.targets import ONNXRUNTIME
from tests.vits import make_vit, random_images

RATES = {1: 0.8, 3: 0.5}


def make_pruned(vit: PrunableViT, scorer: str = "fused") -> PrunedViT:
    inter = np.random.default_rng(0).uniform(0.1, 1.0, (vit.spec.depth, vit.spec.num_patches))
    return PrunedViT(vit, manual_schedule(vit.spec, RATES, ScheduleSettings(scorer)), inter)


def sliced(pruned: PrunedViT) -> onnx.ModelProto:
    return sliced_twin(lower(pruned, ONNXRUNTIME), Facts(pruned.vit.spec, pruned.schedule))


@pytest.mark.ort
@pytest.mark.parametrize("family", ["vit", "distilled", "registers", "qk norm", "lvvit"])
def test_it_computes_what_forcing_the_first_patches_does(family: str) -> None:
    pruned = make_pruned(make_vit(family))
    images = random_images(pruned.vit, 3)
    keep = {
        layer: Kept(torch.arange(pruned.schedule.keep[layer]).expand(3, -1))
        for layer in pruned.schedule.pruning_layers
    }
    with torch.inference_mode():
        expected = pruned.trace(images, forced=keep).logits.numpy()
    with OnnxRuntimeRunner(sliced(pruned).SerializeToString(), name="sliced") as runner:
        got = runner.run({"images": images.numpy()})["logits"]
    np.testing.assert_allclose(got, expected, atol=1e-4 * expected.std() + 1e-6)


def test_nothing_scores_or_chooses(tiny_vit: PrunableViT) -> None:
    twin = sliced(make_pruned(tiny_vit))
    onnx.checker.check_model(twin)
    operators = Counter(node.op_type for node in twin.graph.node)
    dense = lower(PrunedViT(tiny_vit, keep_everything(tiny_vit.spec)), ONNXRUNTIME)
    extra = operators - Counter(node.op_type for node in dense.graph.node)
    # The residual and the queries of each pruning layer are taken by themselves.
    assert extra == {"Slice": 2 * len(RATES)}


def test_the_nodes_of_selection_are_those_that_go(tiny_vit: PrunableViT) -> None:
    pruned = make_pruned(tiny_vit)
    model = lower(pruned, ONNXRUNTIME)
    names = selection_nodes(model, sliced_twin(model, Facts(tiny_vit.spec, pruned.schedule)))
    operators = {node.name: node.op_type for node in model.graph.node}
    gone = Counter(operators[name] for name in names)
    assert gone["TopK"] == 4
    assert gone["Softmax"] == 2  # the class rows
    assert gone["Attention"] == gone["LayerNormalization"] == gone["Split"] == 0


def test_a_model_without_pruning_layers_has_none(tiny_vit: PrunableViT) -> None:
    dense = PrunedViT(tiny_vit, keep_everything(tiny_vit.spec))
    with pytest.raises(ArtefactError, match="without pruning layers"):
        sliced_twin(lower(dense, ONNXRUNTIME), Facts(tiny_vit.spec, dense.schedule))


def test_rows_that_something_else_reads_are_refused(tiny_vit: PrunableViT) -> None:
    pruned = make_pruned(tiny_vit)
    graph = gs.import_onnx(lower(pruned, ONNXRUNTIME))
    rows = graph.tensors()["keep_01/rows"]
    graph.nodes.append(gs.Node("Add", "twice", inputs=[rows, rows], outputs=[gs.Variable("x", np.int64)]))
    with pytest.raises(ArtefactError, match="keep_01"):
        slice_selection(graph, Facts(tiny_vit.spec, pruned.schedule))
