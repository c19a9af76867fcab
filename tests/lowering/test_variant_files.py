"""Variants as files: small, and with the shipped file's own weights."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from exporter.lowering.pipeline import save_onnx
from exporter.lowering.variant_files import LEAST_BYTES, save_variants
from exporter.pruning.pruned_vit import PrunedViT
from exporter.runtimes.onnxruntime.runner import OnnxRuntimeRunner
from exporter.targets import TENSORRT
from tests.lowering.models import a_star, dense, lowered, star
from tests.pruning.adaptive import varied_images

BOTH = pytest.mark.parametrize("make", [star, a_star])


def shipped(pruned: PrunedViT, folder: Path) -> tuple[onnx.ModelProto, Path]:
    model, path = lowered(pruned), folder / "m.onnx"
    save_onnx(model, path)
    return model, path


@BOTH
def test_no_large_tensor_is_written_twice(make: Callable[[], PrunedViT], tmp_path: Path) -> None:
    model, path = shipped(make(), tmp_path)
    content = path.read_bytes()
    weights = {tensor.name: tensor.raw_data for tensor in model.graph.initializer}
    for name in save_variants(path).values():
        variant = onnx.load(tmp_path / name, load_external_data=False)
        outside = [each for each in variant.graph.initializer if each.external_data]
        assert len(outside) > 10
        for tensor in outside:
            told = {entry.key: entry.value for entry in tensor.external_data}
            start = int(told["offset"])
            assert told["location"] == path.name
            assert content[start : start + int(told["length"])] == weights[tensor.name]
        assert all(len(each.raw_data) < LEAST_BYTES for each in variant.graph.initializer)


@BOTH
@pytest.mark.ort
def test_the_tracing_variant_computes_what_is_shipped(make: Callable[[], PrunedViT], tmp_path: Path) -> None:
    _, path = shipped(make(), tmp_path)
    names = save_variants(path)
    images = {"images": varied_images(make().vit, 3).numpy()}
    with OnnxRuntimeRunner(path) as one, OnnxRuntimeRunner(tmp_path / names["tracing"]) as other:
        traced = other.run(images)
        np.testing.assert_array_equal(one.run(images)["logits"], traced.pop("logits"))
    with OnnxRuntimeRunner(tmp_path / names["forced"]) as forced:
        assert {info.name for info in forced.inputs} == {"images", *traced}


@pytest.mark.ort
def test_static_models_for_tensorrt_have_one_of_plain_slices(tmp_path: Path) -> None:
    for pruned, roles in (
        (star(), ["tracing", "forced", "sliced"]),
        (a_star(layout="padded"), ["tracing", "forced"]),
    ):
        save_onnx(lowered(pruned, TENSORRT), tmp_path / "m.onnx")
        names = save_variants(tmp_path / "m.onnx")
        assert list(names) == roles
    save_onnx(lowered(star(), TENSORRT), tmp_path / "m.onnx")
    sliced = tmp_path / save_variants(tmp_path / "m.onnx")["sliced"]
    with OnnxRuntimeRunner(sliced) as runner:
        assert runner.run({"images": varied_images(star().vit, 3).numpy()})["logits"].shape[0] == 3
    assert not {"TopK", "GatherND"} & {node.op_type for node in onnx.load(sliced).graph.node}


def test_a_dense_model_has_none(tmp_path: Path) -> None:
    model = lowered(dense())
    save_onnx(model, tmp_path / "d.onnx")
    assert save_variants(tmp_path / "d.onnx") == {}
