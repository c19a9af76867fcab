"""What is named on the command line becomes models that are ready to run, or one line that says why not."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from exporter.data.batches import View
from exporter.errors import ArtefactError, RecipeError
from exporter.formats.canonical_json import save_json
from exporter.records import Pair
from exporter.runtimes.choice import RunSettings
from exporter.runtimes.openvino_runner import OpenVinoRunner
from exporter.runtimes.tensorrt.runner import TensorRtRunner
from exporter.targets import TENSORRT
from exporter.vocabulary import InputKind
from exporter.workflows.evaluating.models import models_at
from tests.folders import artefacts, write_engines, write_folder
from tests.runtimes.tensorrt.fake_cuda import manifest

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
        assert (model.spec.num_classes, model.runtime) == (spec.num_classes, "onnxruntime")


def test_files_are_called_by_the_shortest_name_that_tells_them_apart(
    files: Pair[Path], tmp_path: Path
) -> None:
    copy = tmp_path / files.dense.name
    shutil.copy(files.dense, copy)
    assert [each.name for each in models_at([files.pruned], QUIET)] == [files.pruned.stem]
    assert [each.name for each in models_at([files.pruned, files.dense], QUIET)] == [
        files.pruned.stem,
        files.dense.stem,
    ]
    assert [each.name for each in models_at([copy, files.dense], QUIET)] == [str(copy), str(files.dense)]
    assert models_at([], QUIET) == ()


def test_the_runtime_that_was_asked_for(files: Pair[Path]) -> None:
    (model,) = models_at([files.dense], RunSettings(runtime="openvino"))
    assert model.runtime == "openvino"
    assert isinstance(model.runner, OpenVinoRunner)


def test_an_engine_is_what_its_onnx_file_says(tmp_path: Path) -> None:
    files = write_folder(tmp_path / "out", TENSORRT)
    write_engines(files, replace(manifest(), onnx=files.pruned.name))
    engine = files.pruned.parent / "engines" / f"{files.pruned.stem}.engine"
    (model,) = models_at([engine], QUIET)
    assert (model.name, model.source, model.runtime) == (engine.stem, engine.name, "tensorrt")
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
