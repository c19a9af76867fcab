"""Models whose weights one file cannot hold, by a limit of a few bytes: the same answers, from any folder."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from exporter.core.base import large_onnx
from exporter.core.base.artefact import artefact_of, read_lowered
from exporter.core.base.errors import ArtefactError
from exporter.core.base.large_onnx import (
    LEAST_BYTES,
    checkable,
    data_path,
    files_of,
    is_large,
    load_whole,
    openable,
    save_onnx,
)
from exporter.core.base.onnx_file import load_onnx
from exporter.core.base.targets import ONNXRUNTIME, ONNXRUNTIME_FP16, OPENVINO, Target
from exporter.core.base.tensor_names import IMAGES, LOGITS
from exporter.core.lower.check import verify
from exporter.core.lower.pipeline import lower
from exporter.core.verify.onnxruntime_runner import OnnxRuntimeRunner
from exporter.serve.loaders import ServeSettings
from exporter.serve.triton import write_repository
from tests.commands import BRIEF, Command, Workplace, succeeded
from tests.commands import files_of as models_of
from tests.core.lower.models import a_star, star

pytestmark = pytest.mark.ort


@pytest.fixture
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the weights of any model exceed."""
    monkeypatch.setattr(large_onnx, "MOST_INSIDE", 2000)


def answers(model: Path) -> np.ndarray:
    images = np.random.default_rng(0).standard_normal((3, 3, 32, 32)).astype(np.float32)
    with OnnxRuntimeRunner(model, threads=1) as runner:
        return runner.run({IMAGES: images})[LOGITS]


def test_weights_lie_beside_the_model_and_move_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = lower(star(), ONNXRUNTIME)
    save_onnx(model, tmp_path / "inside.onnx")
    monkeypatch.setattr(large_onnx, "MOST_INSIDE", 2000)
    assert is_large(model)
    path = tmp_path / "a/m.onnx"
    save_onnx(model, path)
    assert (
        files_of(path) == (path, data_path(path))
        and data_path(path).name == "m.onnx.data"
    )
    assert path.stat().st_size < (tmp_path / "inside.onnx").stat().st_size / 2
    shutil.move(tmp_path / "a", tmp_path / "b")
    moved = tmp_path / "b/m.onnx"
    assert np.array_equal(answers(moved), answers(tmp_path / "inside.onnx"))
    assert read_lowered(moved) == read_lowered(tmp_path / "inside.onnx")
    weights = {
        tensor.name: tensor.raw_data for tensor in load_whole(moved).graph.initializer
    }
    assert weights == {
        tensor.name: tensor.raw_data for tensor in model.graph.initializer
    }


def test_the_same_model_gives_the_same_bytes_and_a_smaller_one_leaves_no_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, path = lower(star(), ONNXRUNTIME), tmp_path / "m.onnx"
    with monkeypatch.context() as patch:
        patch.setattr(large_onnx, "MOST_INSIDE", 2000)
        save_onnx(model, path)
        first = [file.read_bytes() for file in files_of(path)]
        save_onnx(model, path)
        assert [file.read_bytes() for file in files_of(path)] == first
    save_onnx(model, path)
    assert [file.name for file in tmp_path.iterdir()] == ["m.onnx"]


@pytest.mark.usefixtures("small_limit")
@pytest.mark.parametrize("target", [ONNXRUNTIME, ONNXRUNTIME_FP16, OPENVINO], ids=str)
def test_what_serialises_a_model_takes_a_large_one_without_its_weights(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """protobuf refuses more than 2 GB: no step of the lowering gives it the weights."""
    sizes = []

    def noted(model: onnx.ModelProto, *given: Any, **how: Any) -> Any:
        sizes.append(sum(len(tensor.raw_data) for tensor in model.graph.initializer))
        return infer(model, *given, **how)

    infer = onnx.shape_inference.infer_shapes
    monkeypatch.setattr(onnx.shape_inference, "infer_shapes", noted)
    model = lower(star(), target)
    verify(model, artefact_of(model))
    light = checkable(model)
    onnx.checker.check_model(light)
    assert sizes and all(size < 40 * LEAST_BYTES for size in sizes)
    assert (
        sum(len(tensor.raw_data) for tensor in light.graph.initializer)
        < 40 * LEAST_BYTES
    )
    with openable(model) as path:
        assert isinstance(path, Path) and data_path(path).is_file()
    assert not path.exists()


@pytest.mark.usefixtures("small_limit")
def test_padded_a_star_is_inlined_without_the_weights() -> None:
    model = lower(a_star(layout="padded"), ONNXRUNTIME)
    assert is_large(model)


@pytest.mark.usefixtures("small_limit")
def test_missing_weights_are_one_line(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    save_onnx(lower(star(), ONNXRUNTIME), path)
    data_path(path).unlink()
    load_onnx(path)
    with pytest.raises(ArtefactError, match=r"its weights beside it, in m\.onnx\.data"):
        load_whole(path)


@pytest.mark.usefixtures("small_limit")
def test_a_large_model_is_compiled_checked_measured_and_served(
    star_export: Command, workplace: Workplace, tmp_path: Path
) -> None:
    """From a folder that was moved, and whatever the working directory is."""
    images = ("--images", workplace.images)
    model = (*workplace.model, *images, "--recipe", BRIEF)
    model += ("--set", "model.preprocess.crop_rounding=down")
    flags = ("--method", "star", "--scorer", "intra", "--rho", "0.5", "--rounds", "5")
    succeeded(
        star_export("compile", *model, *flags, "--batch", "2", "--out", tmp_path / "a")
    )
    shutil.move(tmp_path / "a", tmp_path / "b")
    folder = tmp_path / "b"
    files = models_of(folder)
    for path in (files.dense, files.pruned):
        assert len(files_of(path)) == 2
        assert f"{path.name}.data" in (folder / "SHA256SUMS").read_text()
    hub, quick = tmp_path / "hub", ("--batches", "1", "--rounds", "5", "--warmup", "0")
    for verb in (
        ("check", folder),
        ("check", "--onnx", files.pruned, *model),
        ("eval", folder, *images, "--batch", "4"),
        ("bench", folder, *quick),
        ("serve-config", folder, "--loader", "huggingface", "--out", hub),
    ):
        succeeded(star_export(*verb))
    for place in write_repository(folder, tmp_path / "models", ServeSettings()).models:
        np.testing.assert_array_equal(
            answers(place / "1/model.onnx"),
            answers(files.dense if "dense" in place.name else files.pruned),
        )
    data_path(files.pruned).write_bytes(b"torn")
    refused = star_export("check", folder)
    assert refused.code == 2
    assert f"{files.pruned.name}.data | got sha256" in refused.error
    shutil.rmtree(folder)
    assert (hub / "onnx/model.onnx_data").is_file()
    with OnnxRuntimeRunner(hub / "onnx/model.onnx", threads=1) as runner:
        pixels = np.zeros((1, 3, 32, 32), np.float32)
        assert np.isfinite(runner.run({"pixel_values": pixels})[LOGITS]).all()
