"""What is named becomes models ready to run."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from exporter.core.base.canonical_json import save_json
from exporter.core.base.errors import ArtefactError, RecipeError
from exporter.core.base.large_onnx import save_onnx
from exporter.core.base.records import Pair
from exporter.core.base.targets import ONNXRUNTIME_INT8, TARGETS, TENSORRT
from exporter.core.base.tensor_names import IMAGES, LOGITS, Array
from exporter.core.base.vocabulary import InputKind
from exporter.core.lower.pipeline import lower
from exporter.core.verify.openvino_runner import OpenVinoRunner
from exporter.core.verify.runner import Runner
from exporter.data.batches import View, noise
from exporter.engines.choice import RunSettings
from exporter.engines.runner import TensorRtRunner
from exporter.jobs.eval_models import models_at
from exporter.jobs.steps import dense
from tests.engines.engines import manifest
from tests.folders import artefacts, write_engines, write_folder
from tests.vits import make_vit

QUIET = RunSettings(threads=1)


@pytest.fixture
def files(tmp_path: Path) -> Pair[Path]:
    return write_folder(tmp_path / "out", input_kind=InputKind.UINT8)


def test_a_folder_is_its_dense_and_its_pruned_model(files: Pair[Path]) -> None:
    models = models_at([files.dense.parent], QUIET)
    assert [model.name for model in models] == ["dense", "pruned"]
    assert [model.source for model in models] == [files.dense.name, files.pruned.name]
    spec = artefacts().dense.spec
    for model in models:
        assert model.view == View(spec.preprocessing, InputKind.UINT8)
        assert model.spec.num_classes == spec.num_classes
        assert model.runtime.name == "onnxruntime"


def test_files_are_called_by_the_shortest_name_that_tells_them_apart(
    files: Pair[Path], tmp_path: Path
) -> None:
    copy = tmp_path / files.dense.name
    shutil.copy(files.dense, copy)
    assert [each.name for each in models_at([files.pruned], QUIET)] == [
        files.pruned.stem
    ]
    assert [each.name for each in models_at([files.pruned, files.dense], QUIET)] == [
        files.pruned.stem,
        files.dense.stem,
    ]
    assert [each.name for each in models_at([copy, files.dense], QUIET)] == [
        str(copy),
        str(files.dense),
    ]
    assert models_at([], QUIET) == ()


def test_the_runtime_that_was_asked_for(files: Pair[Path]) -> None:
    (model,) = models_at([files.dense], RunSettings(runtime="openvino"))
    assert model.runtime.name == "openvino"
    assert isinstance(model.runner, OpenVinoRunner)


@pytest.mark.ort
@pytest.mark.parametrize("of_runtime", [None, "openvino"])
def test_an_answer_depends_on_no_image_beside_it(
    tmp_path: Path, of_runtime: str | None
) -> None:
    """In batches, ranges that come from each batch make it depend on the others."""
    assert [target for target in TARGETS.values() if target.dynamic] == [
        ONNXRUNTIME_INT8
    ]
    path = tmp_path / "int8.onnx"
    save_onnx(lower(dense(make_vit()), ONNXRUNTIME_INT8), path)
    (model,) = models_at([path], RunSettings(runtime=of_runtime, threads=1))
    size = (12, *model.spec.preprocessing.input_size)
    scale = np.linspace(0.1, 3, 12, dtype=np.float32)[:, None, None, None]
    images = scale * np.random.default_rng(0).standard_normal(size, dtype=np.float32)

    def logits(runner: Runner, batch: int) -> Array:
        parts = [images[start : start + batch] for start in range(0, 12, batch)]
        with runner:
            return np.concatenate(
                [runner.run({IMAGES: part})[LOGITS] for part in parts]
            )

    alone = logits(model.runner, 1)
    assert not np.allclose(logits(model.runner, 12), alone, rtol=1e-3, atol=1e-3)
    for batch in (1, 5, 12):
        assert np.array_equal(logits(model.answering, batch), alone)
    assert (model.per_run(32), replace(model, dynamic=False).per_run(32)) == (1, 32)


def test_an_engine_is_what_its_onnx_file_says(tmp_path: Path) -> None:
    files = write_folder(tmp_path / "out", TENSORRT)
    write_engines(files, replace(manifest(), onnx=files.pruned.name))
    engine = files.pruned.parent / "engines" / f"{files.pruned.stem}.engine"
    (model,) = models_at([engine], QUIET)
    assert model.name == engine.stem
    assert model.source == engine.name
    assert model.runtime.name == "tensorrt"
    assert isinstance(model.runner, TensorRtRunner)
    both = models_at([files.pruned, engine], RunSettings(runtime=None))
    assert [each.name for each in both] == [files.pruned.name, engine.name]
    with pytest.raises(RecipeError, match=r"--runtime \| got openvino \| need none"):
        models_at([engine], RunSettings(runtime="openvino"))
    files.pruned.unlink()
    with pytest.raises(ArtefactError, match=r"\.engine \| got no .*\.onnx beside it"):
        models_at([engine], QUIET)


def test_an_engine_may_lie_beside_its_file(tmp_path: Path) -> None:
    files = write_folder(tmp_path / "out", TENSORRT)
    engine = files.dense.with_suffix(".engine")
    engine.write_bytes(b"plan")
    save_json(replace(manifest(), onnx=files.dense.name), engine.with_suffix(".json"))
    (model,) = models_at([engine], QUIET)
    assert model.name == engine.stem


def test_what_cannot_be_evaluated(files: Pair[Path], tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="an export folder alone"):
        models_at([files.dense.parent, files.dense], QUIET)
    with pytest.raises(RecipeError, match="twice"):
        models_at([files.dense, files.dense.parent / "." / files.dense.name], QUIET)
    with pytest.raises(ArtefactError, match=r"none\.onnx"):
        models_at([tmp_path / "none.onnx"], QUIET)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ArtefactError, match="an export folder"):
        models_at([tmp_path / "empty"], QUIET)


def test_noise_is_what_the_model_takes() -> None:
    spec = make_vit().spec
    assert noise(spec, "uint8", 2).dtype == np.uint8
    images = noise(spec, "float32", 2, seed=3)
    assert (images.dtype, images.shape) == (np.float32, (2, 3, 32, 32))
    np.testing.assert_array_equal(images, noise(spec, "float32", 2, seed=3))
