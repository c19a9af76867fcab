"""The files written for Triton. No Triton has read them: see docs/verification.md."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from exporter.core.base.artefact import Artefact
from exporter.core.base.errors import ArtefactError
from exporter.core.base.records import Pair
from exporter.core.base.targets import ONNXRUNTIME, OPENVINO, TARGETS, TENSORRT
from exporter.core.base.vocabulary import InputKind, Method
from exporter.core.schedule.plan import manual_schedule
from exporter.core.schedule.policy import resolve
from exporter.core.schedule.prune import Prune
from exporter.core.vit.spec import with_outputs
from exporter.engines.manifest import ENGINES, manifest_path
from exporter.jobs.inspect import inspect_artefact
from exporter.serve import triton
from exporter.serve.export_folder import read_models
from exporter.serve.loaders import ServeSettings
from exporter.serve.triton import config_text, write_repository
from tests.engines.engines import manifest
from tests.folders import write_engines, write_folder
from tests.vits import make_vit

BATCHES = (1, 8, 32)
MANIFEST = manifest(batches=BATCHES, any_batch=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_folder(tmp_path / "folder")
    return tmp_path / "folder"


@pytest.mark.parametrize(
    ("target", "settings", "hint", "lines"),
    [
        ("onnxruntime-int8", {"max_batch": 8}, "--max-batch 1", 1),
        ("onnxruntime-int8", {"max_batch": 1}, "--max-batch 1", 0),
        ("openvino-int8", {"max_batch": 8}, "--max-batch 1", 0),
        ("openvino-fp32", {}, "--backend onnxruntime", 1),
        ("openvino-fp32", {"backend": "onnxruntime"}, "--backend onnxruntime", 0),
    ],
)
def test_a_line_says_where_answers_depend_on_other_clients_or_may_be_in_bf16(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    target: str,
    settings: dict[str, Any],
    hint: str,
    lines: int,
) -> None:
    write_folder(tmp_path / "folder", TARGETS[target])
    write_repository(
        tmp_path / "folder", tmp_path / "models", ServeSettings(**settings)
    )
    assert sum(hint in message for message in caplog.messages) == lines


def test_a_repository_for_onnx_runtime(folder: Path, tmp_path: Path) -> None:
    made = write_repository(folder, tmp_path / "models", ServeSettings(max_batch=16))
    dense, pruned = made.models
    assert pruned.name == "vit_star_onnxruntime-fp32"
    for place, method in ((dense, "dense"), (pruned, "star")):
        source = folder / f"vit.{method}.onnxruntime-fp32.onnx"
        assert (place / "1/model.onnx").read_bytes() == source.read_bytes()
    text = (dense / "config.pbtxt").read_text()
    for line in (
        'name: "vit_dense_onnxruntime-fp32"',
        'backend: "onnxruntime"',
        'default_model_filename: "model.onnx"',
        "max_batch_size: 16",
        "instance_group [ { kind: KIND_AUTO count: 1 } ]",
        'input [ { name: "images" data_type: TYPE_FP32 dims: [ 3, 4, 4 ] } ]',
        'output [ { name: "logits" data_type: TYPE_FP32 dims: [ 8 ] } ]',
    ):
        assert line in text.splitlines()
    assert '"interpolation"' in text.splitlines()[0]
    assert made.command == ("tritonserver", f"--model-repository={tmp_path}/models")
    assert (
        "graphs" not in text
        and "label" not in text
        and not (dense / "labels.txt").exists()
    )


def test_names_of_classes_are_a_file_of_labels_line_by_line(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each name is a line, whatever is in it: the line says which class it is."""
    models = read_models(folder)
    names = (
        "tench, Tinca tinca",
        "two\nlines",
        *(f"class {index}" for index in range(2, 8)),
    )
    named = []
    for file in (models.dense, models.pruned):
        spec = replace(file.spec, class_names=names)
        named.append(replace(file, spec=spec))
    monkeypatch.setattr(triton, "read_for", lambda *_: Pair(*named))
    for place in write_repository(folder, tmp_path / "models", ServeSettings()).models:
        text = (place / "config.pbtxt").read_text()
        assert 'dims: [ 8 ] label_filename: "labels.txt" } ]' in text
        lines = (place / "labels.txt").read_text().splitlines()
        assert lines == ["tench, Tinca tinca", "two lines", *names[2:]]


def test_a_file_name_cannot_add_to_a_config() -> None:
    vit = make_vit()
    artefact = Artefact(
        vit.spec,
        manual_schedule(vit.spec, {2: 0.5}, resolve(Prune("intra"))),
        ONNXRUNTIME,
    )
    text = config_text(
        'm" max_batch_size: "7', artefact, ServeSettings(), backend="onnxruntime"
    )
    assert r'name: "m\" max_batch_size: \"7"' in text.splitlines()


def test_every_tensor_of_an_output_is_served() -> None:
    vit = with_outputs(make_vit(), ("embedding", "layer:-1"))
    for method, counted in ((Method.STAR, False), (Method.A_STAR, True)):
        schedule = manual_schedule(
            vit.spec, {2: 0.5}, resolve(Prune("intra", method=method))
        )
        artefact = Artefact(vit.spec, schedule, ONNXRUNTIME)
        lines = config_text(
            "m", artefact, ServeSettings(), backend="onnxruntime"
        ).splitlines()
        assert [line for line in lines if line.startswith("output")] == [
            'output [ { name: "embedding" data_type: TYPE_FP32 dims: [ 48 ] } ]',
            'output [ { name: "layer_04" data_type: TYPE_FP32 dims: [ -1, 48 ] } ]',
            'output [ { name: "layer_04_positions" data_type: TYPE_INT64 dims: [ -1 ] } ]',
            'output [ { name: "layer_04_count" data_type: TYPE_INT64 dims: [ 1 ] reshape { shape: [ ] } } ]',
        ][: 4 if counted else 3]


def test_pixels_are_served_as_bytes(tmp_path: Path) -> None:
    write_folder(tmp_path / "folder", input_kind=InputKind.UINT8)
    place = write_repository(
        tmp_path / "folder", tmp_path / "models", ServeSettings()
    ).models[1]
    text = (place / "config.pbtxt").read_text()
    assert (
        'input [ { name: "images" data_type: TYPE_UINT8 dims: [ 3, 4, 4 ] } ]' in text
    )


def test_what_was_made_for_openvino_is_served_by_it(tmp_path: Path) -> None:
    files = write_folder(tmp_path / "folder", OPENVINO)
    place = write_repository(
        tmp_path / "folder", tmp_path / "models", ServeSettings(instances=2)
    ).models[1]
    text = (place / "config.pbtxt").read_text().splitlines()
    assert {'backend: "openvino"', 'default_model_filename: "model.onnx"'} <= set(text)
    assert "instance_group [ { kind: KIND_CPU count: 2 } ]" in text
    assert (place / "1/model.onnx").read_bytes() == files.pruned.read_bytes()


def test_a_folder_for_another_runtime(folder: Path, tmp_path: Path) -> None:
    for backend in ("openvino", "tensorrt"):
        with pytest.raises(
            ArtefactError,
            match=f"got models for onnxruntime-fp32 .* need models for {backend}",
        ):
            write_repository(
                folder, tmp_path / "models", ServeSettings(backend=backend)
            )
    assert not (tmp_path / "models").exists()
    write_folder(tmp_path / "other", OPENVINO)
    (dense, _) = write_repository(
        tmp_path / "other", tmp_path / "models", ServeSettings(backend="onnxruntime")
    ).models
    assert 'backend: "onnxruntime"' in (dense / "config.pbtxt").read_text()


def test_engines_bring_their_profiles(tmp_path: Path) -> None:
    settings, folder = ServeSettings(max_batch=64), tmp_path / "folder"
    files = write_folder(folder, TENSORRT)
    with pytest.raises(ArtefactError, match="star-export build FOLDER"):
        write_repository(folder, tmp_path / "models", settings)
    write_engines(files, MANIFEST)
    place = write_repository(folder, tmp_path / "models", settings).models[1]
    text = (place / "config.pbtxt").read_text()
    assert (place / "1/model.plan").read_bytes() == b"plan"
    assert "optimization { cuda { graphs: true } }" in text
    for part in (
        "max_batch_size: 32",
        'profile: [ "0", "1", "2" ]',
        "preferred_batch_size: [ 8, 32 ]",
    ):
        assert part in text


@pytest.mark.parametrize("compatible", [False, True])
def test_engines_with_code_inside_are_allowed_for(
    tmp_path: Path, compatible: bool
) -> None:
    folder = tmp_path / "folder"
    told = manifest(batches=BATCHES, any_batch=True, version_compatible=compatible)
    write_engines(write_folder(folder, TENSORRT), told)
    command = write_repository(folder, tmp_path / "models", ServeSettings()).command
    assert (
        "--backend-config=tensorrt,version-compatible=true" in command
    ) is compatible


def test_an_engine_of_some_batches_cannot_batch_dynamically(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    files = write_folder(folder, TENSORRT)
    write_engines(files, manifest(batches=BATCHES))
    with pytest.raises(ArtefactError, match="build --any-batch"):
        write_repository(folder, tmp_path / "models", ServeSettings())
    write_engines(files, replace(MANIFEST, plugin_sha256="0" * 64))
    with pytest.raises(ArtefactError, match="padded"):
        write_repository(folder, tmp_path / "models", ServeSettings())


def test_inspect_reads_an_engine_by_its_manifest(tmp_path: Path) -> None:
    write_engines(write_folder(tmp_path / "folder", TENSORRT), MANIFEST)
    (engine, _) = sorted((tmp_path / "folder" / ENGINES).glob("*.engine"))
    for path, kind in ((engine, "engine"), (manifest_path(engine), "engine manifest")):
        described = inspect_artefact(path)
        assert described["kind"] == kind
        assert described["settings"]["batches"] == [1, 8, 32]
