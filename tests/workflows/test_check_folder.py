"""An export folder on the deployment runtime, compared with its reference."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from exporter.errors import ArtefactError, ParityError
from exporter.runtimes.choice import RunSettings
from exporter.targets import ONNXRUNTIME, OPENVINO, TENSORRT
from exporter.vocabulary import InputKind
from exporter.workflows.check_folder import check_folder
from tests.folders import save_all_checksums, write_folder


@pytest.mark.ort
@pytest.mark.parametrize("input_kind", list(InputKind))
def test_a_folder_as_it_was_left(tmp_path: Path, input_kind: InputKind) -> None:
    write_folder(tmp_path, ONNXRUNTIME, input_kind=input_kind)
    result = check_folder(tmp_path, RunSettings(threads=1))
    assert (result.passed, result.runtime) == (True, "onnxruntime")
    assert [layer.layer for layer in result.pruned.layers] == [2, 4]
    assert result.dense.layers == ()
    assert result.pruned.images == result.dense.images == 4


def test_the_runtime_is_the_target_s(tmp_path: Path) -> None:
    write_folder(tmp_path, OPENVINO)
    assert check_folder(tmp_path, RunSettings()).runtime == "openvino"


@pytest.mark.ort
def test_a_file_for_tensorrt_can_be_tried_on_another_runtime(tmp_path: Path) -> None:
    write_folder(tmp_path, TENSORRT)
    assert check_folder(tmp_path, RunSettings(runtime="onnxruntime")).passed


@pytest.mark.ort
@pytest.mark.parametrize("role", ["dense", "pruned"])
def test_a_model_of_other_weights_fails_alone(tmp_path: Path, role: str) -> None:
    path = getattr(write_folder(tmp_path), role)
    model = onnx.load(path)
    weight = next(each for each in model.graph.initializer if each.name == "weight")
    weight.CopyFrom(onnx.numpy_helper.from_array(1.01 * onnx.numpy_helper.to_array(weight), "weight"))
    onnx.save(model, path)
    save_all_checksums(tmp_path)
    result = check_folder(tmp_path, RunSettings())
    assert not result.passed
    assert {name: getattr(result, name).passed for name in ("dense", "pruned")} == {
        "dense": role != "dense",
        "pruned": role != "pruned",
    }


@pytest.mark.ort
def test_a_reference_without_the_scores(tmp_path: Path) -> None:
    write_folder(tmp_path)
    with np.load(tmp_path / "reference.npz") as arrays:
        kept = {name: arrays[name] for name in arrays.files if name != "score_04"}
    np.savez(tmp_path / "reference.npz", **kept)
    save_all_checksums(tmp_path)
    with pytest.raises(ParityError, match="score_04 of 0 images"):
        check_folder(tmp_path, RunSettings())


def test_a_folder_that_was_changed(tmp_path: Path) -> None:
    files = write_folder(tmp_path)
    files.pruned.write_bytes(files.dense.read_bytes())
    with pytest.raises(ArtefactError, match="copy it again"):
        check_folder(tmp_path, RunSettings())
