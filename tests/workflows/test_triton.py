"""What Triton is told. No Triton has read it: see docs/verification.md."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from exporter.errors import ArtefactError, RecipeError
from exporter.records import ModelSpec, save_json
from exporter.runtimes.tensorrt.manifest import ENGINES, Built, EngineManifest, engine_path, manifest_path
from exporter.workflows.export_folder import save_checksums
from exporter.workflows.inspect import inspect_artefact
from exporter.workflows.triton import ServeSettings, load_command, write_repository
from tests.vits import make_vit

MANIFEST = EngineManifest(
    engine_sha256="",
    onnx="",
    onnx_sha256="",
    schedule_sha256="",
    plugin_sha256="",
    plugin_serialised=False,
    batches=(1, 8, 32),
    any_batch=True,
    workspace_mib=0,
    tf32=False,
    hardware="NONE",
    version_compatible=False,
    strongly_typed=True,
    built=Built("", "", "", "", ""),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    spec: ModelSpec = make_vit().spec
    place = tmp_path / "folder"
    place.mkdir()
    names = {role: f"vit.{role}.onnxruntime-fp32.onnx" for role in ("dense", "pruned")}
    for name in names.values():
        (place / name).write_bytes(name.encode())
    (place / "report.json").write_text(json.dumps({"files": names, "target": "onnxruntime-fp32"}))
    np.savez(place / "reference.npz", images=np.zeros((1, *spec.preprocessing.input_size), np.float32))
    save_json(spec, place / "model.json")
    save_checksums(place, [*names.values(), "reference.npz", "model.json"])
    return place


def retarget(folder: Path, target: str) -> None:
    report = json.loads((folder / "report.json").read_text())
    (folder / "report.json").write_text(json.dumps({**report, "target": target}))


def test_a_repository_for_onnx_runtime(folder: Path, tmp_path: Path) -> None:
    dense, pruned = write_repository(folder, tmp_path / "models", ServeSettings(max_batch=16))
    assert pruned.name == "vit_pruned_onnxruntime-fp32"
    assert (pruned / "1/model.onnx").read_bytes() == b"vit.pruned.onnxruntime-fp32.onnx"
    text = (dense / "config.pbtxt").read_text()
    for line in (
        'name: "vit_dense_onnxruntime-fp32"',
        'backend: "onnxruntime"',
        'default_model_filename: "model.onnx"',
        "max_batch_size: 16",
        "instance_group [ { kind: KIND_AUTO count: 1 } ]",
        'input [ { name: "images" data_type: TYPE_FP32 dims: [ 3, 32, 32 ] } ]',
        'output [ { name: "logits" data_type: TYPE_FP32 dims: [ 7 ] } ]',
    ):
        assert line in text.splitlines()
    assert '"interpolation"' in text.splitlines()[0]
    assert load_command(tmp_path) == f"tritonserver --model-repository={tmp_path}"


def test_what_was_made_for_openvino_is_served_by_it(folder: Path, tmp_path: Path) -> None:
    retarget(folder, "openvino-fp32")
    place = write_repository(folder, tmp_path / "models", ServeSettings(instances=2))[1]
    text = (place / "config.pbtxt").read_text().splitlines()
    assert {'backend: "openvino"', 'default_model_filename: "model.onnx"'} <= set(text)
    assert "instance_group [ { kind: KIND_CPU count: 2 } ]" in text
    assert (place / "1/model.onnx").read_bytes() == b"vit.pruned.onnxruntime-fp32.onnx"


def test_a_folder_for_another_runtime(folder: Path, tmp_path: Path) -> None:
    for backend in ("openvino", "tensorrt"):
        with pytest.raises(
            ArtefactError, match=f"got models for onnxruntime-fp32 .* need models for {backend}"
        ):
            write_repository(folder, tmp_path / "models", ServeSettings(backend=backend))
    assert not (tmp_path / "models").exists()
    retarget(folder, "openvino-fp32")
    (dense, _) = write_repository(folder, tmp_path / "models", ServeSettings(backend="onnxruntime"))
    assert 'backend: "onnxruntime"' in (dense / "config.pbtxt").read_text()


def with_engines(folder: Path, manifest: EngineManifest) -> None:
    retarget(folder, "tensorrt-fp32")
    for name in json.loads((folder / "report.json").read_text())["files"].values():
        engine = engine_path(folder / ENGINES, Path(name))
        engine.parent.mkdir(exist_ok=True)
        engine.write_bytes(b"plan")
        save_json(manifest, manifest_path(engine))


def test_engines_bring_their_profiles(folder: Path, tmp_path: Path) -> None:
    settings = ServeSettings(max_batch=64)
    retarget(folder, "tensorrt-fp32")
    with pytest.raises(ArtefactError, match="star-export build FOLDER"):
        write_repository(folder, tmp_path / "models", settings)
    with_engines(folder, MANIFEST)
    place = write_repository(folder, tmp_path / "models", settings)[1]
    text = (place / "config.pbtxt").read_text()
    assert (place / "1/model.plan").read_bytes() == b"plan"
    for part in ("max_batch_size: 32", 'profile: [ "0", "1", "2" ]', "preferred_batch_size: [ 8, 32 ]"):
        assert part in text


def test_an_engine_of_some_batches_cannot_batch_dynamically(folder: Path, tmp_path: Path) -> None:
    with_engines(folder, replace(MANIFEST, any_batch=False))
    with pytest.raises(ArtefactError, match="build --any-batch"):
        write_repository(folder, tmp_path / "models", ServeSettings())
    with_engines(folder, replace(MANIFEST, plugin_sha256="0" * 64))
    with pytest.raises(ArtefactError, match="padded"):
        write_repository(folder, tmp_path / "models", ServeSettings())


def test_inspect_reads_an_engine_by_its_manifest(folder: Path) -> None:
    with_engines(folder, MANIFEST)
    (engine, _) = sorted((folder / ENGINES).glob("*.engine"))
    for path, kind in ((engine, "engine"), (manifest_path(engine), "engine manifest")):
        described = inspect_artefact(path)
        assert (described["kind"], described["batches"]) == (kind, [1, 8, 32])


@pytest.mark.parametrize(
    "wrong", [{"backend": "x"}, {"max_batch": 0}, {"instances": 0}, {"queue_delay_us": -1}]
)
def test_settings_that_serve_nothing(wrong: dict[str, object]) -> None:
    with pytest.raises(RecipeError):
        ServeSettings(**wrong)  # type: ignore[arg-type]
