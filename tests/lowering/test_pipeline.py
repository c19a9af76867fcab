"""Lowered models: the graph is what the schedule says, and the runtime computes what PyTorch does."""

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from exporter.calibration.pixels import normalise
from exporter.errors import ModelError
from exporter.lowering.pipeline import lower, save_onnx
from exporter.models.base import PrunableViT
from exporter.models.registry import ModelRequest, describe
from exporter.pruning.pruned_vit import PrunedViT
from exporter.records import Preprocessing, Schedule, from_json
from exporter.runners.onnxruntime_runner import OnnxRuntimeRunner
from exporter.schedule.plan import ScheduleSettings, keep_everything, manual_schedule
from exporter.targets import ONNXRUNTIME
from exporter.tensor_names import KEY_PREFIX
from tests.vits import FAMILIES, make_vit, random_images

RATES = {1: 0.8, 2: 0.7, 4: 0.5}


def make_pruned(vit: PrunableViT, scorer: str = "fused") -> PrunedViT:
    inter = np.random.default_rng(0).uniform(0.1, 1.0, (vit.spec.depth, vit.spec.num_patches))
    return PrunedViT(vit, manual_schedule(vit.spec, RATES, ScheduleSettings(scorer)), inter)


def run(model: onnx.ModelProto, images: np.ndarray) -> np.ndarray:
    with OnnxRuntimeRunner(model.SerializeToString(), name="lowered") as runner:
        return runner.run({"images": images})["logits"]


@pytest.mark.ort
@pytest.mark.parametrize("family", FAMILIES)
def test_onnx_runtime_computes_what_pytorch_does(family: str) -> None:
    vit = make_vit(family)
    for pruned in (make_pruned(vit), PrunedViT(vit, keep_everything(vit.spec))):
        model = lower(pruned, ONNXRUNTIME)
        for batch in (1, 3):
            images = random_images(vit, batch)
            with torch.inference_mode():
                expected = pruned(images).numpy()
            assert np.abs(run(model, images.numpy()) - expected).max() < 1e-4 * expected.std() + 1e-6


@pytest.mark.ort
@pytest.mark.parametrize("scorer", ["intra", "inter", "random"])
def test_every_scorer_is_lowered(tiny_vit: PrunableViT, scorer: str) -> None:
    pruned, images = make_pruned(tiny_vit, scorer), random_images(tiny_vit, 2)
    with torch.inference_mode():
        expected = pruned(images).numpy()
    np.testing.assert_allclose(run(lower(pruned, ONNXRUNTIME), images.numpy()), expected, atol=1e-4)


def test_the_graph_prunes_where_the_schedule_does(tiny_vit: PrunableViT) -> None:
    model = lower(make_pruned(tiny_vit), ONNXRUNTIME)
    operators = Counter(node.op_type for node in model.graph.node)
    assert operators["TopK"] == 2 * 3
    assert {node.domain for node in model.graph.node} == {""}
    assert "GatherElements" not in {n.op_type for n in model.graph.node if "tokens" in n.output[0]}
    names = {name for node in model.graph.node for name in node.output}
    assert {"keep_01", "keep_02", "keep_04", "tokens_01", "context_03"} <= names
    assert "keep_03" not in names


def test_the_dense_graph_scores_nothing(tiny_vit: PrunableViT) -> None:
    model = lower(PrunedViT(tiny_vit, keep_everything(tiny_vit.spec)), ONNXRUNTIME)
    operators = Counter(node.op_type for node in model.graph.node)
    assert operators["TopK"] == operators["GatherND"] == 0
    assert operators["Softmax"] == 0
    assert operators["Attention"] == tiny_vit.spec.depth


def test_every_size_but_the_batch_is_static(tiny_vit: PrunableViT) -> None:
    model = onnx.shape_inference.infer_shapes(lower(make_pruned(tiny_vit), ONNXRUNTIME), data_prop=True)
    for value in (*model.graph.value_info, *model.graph.input, *model.graph.output):
        dynamic = [d.dim_param for d in value.type.tensor_type.shape.dim if not d.HasField("dim_value")]
        # Linear layers see the tokens of all images as one matrix.
        assert len(dynamic) <= 1 and all(size.split("*")[0] == "batch" for size in dynamic), value.name


@pytest.mark.ort
def test_uint8_input_holds_the_normalisation(tiny_vit: PrunableViT) -> None:
    pruned = make_pruned(tiny_vit)
    pixels = torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8)
    with torch.inference_mode():
        expected = pruned(normalise(pixels, tiny_vit.spec.preprocessing)).numpy()
    model = lower(pruned, ONNXRUNTIME, "uint8")
    assert model.graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.UINT8
    np.testing.assert_allclose(run(model, pixels.numpy()), expected, atol=1e-4)


def test_metadata_says_what_the_file_is(tiny_vit: PrunableViT) -> None:
    pruned = make_pruned(tiny_vit)
    properties = {p.key: p.value for p in lower(pruned, ONNXRUNTIME).metadata_props}
    assert from_json(Schedule, properties[f"{KEY_PREFIX}schedule"], source="") == pruned.schedule
    preprocessing = from_json(Preprocessing, properties[f"{KEY_PREFIX}preprocessing"], source="")
    assert preprocessing == tiny_vit.spec.preprocessing
    assert properties[f"{KEY_PREFIX}weights_sha256"] == tiny_vit.weights_sha256
    assert properties[f"{KEY_PREFIX}method"] == "star"


def test_the_same_model_gives_the_same_bytes_without_a_path(tmp_path: Path) -> None:
    for name in ("a.onnx", "b.onnx"):
        save_onnx(lower(make_pruned(make_vit()), ONNXRUNTIME), tmp_path / name)
    content = (tmp_path / "a.onnx").read_bytes()
    assert content == (tmp_path / "b.onnx").read_bytes()
    assert b".py" not in content
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.onnx", "b.onnx"]


def test_an_unknown_input_is_refused(tiny_vit: PrunableViT) -> None:
    with pytest.raises(ModelError, match="float32 or uint8"):
        lower(make_pruned(tiny_vit), ONNXRUNTIME, "float16")


def test_a_model_that_one_file_cannot_hold_is_refused_before_the_export() -> None:
    vit = describe(ModelRequest("vit_giant_patch14_dinov2", num_classes=10))
    with pytest.raises(ModelError, match=r"4\.\d GB of weights \| need less than 2 GB"):
        lower(PrunedViT(vit, keep_everything(vit.spec)), ONNXRUNTIME)
