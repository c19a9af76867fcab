"""From a folder to engines, manifests and trtexec lines; TensorRT is stood in for."""

import importlib.util
import json
from pathlib import Path

import pytest

from exporter.errors import ArtefactError, UserError
from exporter.records import save_json
from exporter.runtimes.tensorrt.manifest import Built, check_manifest
from exporter.runtimes.tensorrt.settings import BuildSettings
from exporter.schedule.plan import ScheduleSettings, manual_schedule
from exporter.tensor_names import VARIANTS, variant_path
from exporter.workflows import build
from exporter.workflows.build import build_folder
from exporter.workflows.export_folder import save_checksums
from tests.cli.conftest import Command, star_export  # noqa: F401
from tests.runtimes.tensorrt.fake_tensorrt import fake_tensorrt
from tests.vits import make_vit

HERE = Built("11.4.0.106", "13.0", "580.65", "NVIDIA A100-SXM4-80GB", "8.0")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    spec, place = make_vit().spec, tmp_path / "folder"
    place.mkdir()
    files = {role: f"vit.{role}.tensorrt-fp32.onnx" for role in ("dense", "pruned")}
    variants = [variant_path(Path(files["pruned"]), role).name for role in VARIANTS]
    for name in (*files.values(), *variants):
        (place / name).write_bytes(name.encode())
    (place / "report.json").write_text(json.dumps({"files": files, "target": "tensorrt-fp32"}))
    save_json(spec, place / "model.json")
    save_json(manual_schedule(spec, {2: 0.5}, ScheduleSettings("intra")), place / "schedule.json")
    save_checksums(place, [*files.values(), *variants, "model.json", "schedule.json"])
    return place


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "import_tensorrt", lambda: fake_tensorrt(HERE.tensorrt))
    monkeypatch.setattr(build, "this_machine", lambda version: HERE)


@pytest.mark.usefixtures("machine")
def test_both_models_and_both_variants(folder: Path) -> None:
    built = build_folder(folder, BuildSettings(batches=(1, 8)))
    assert [each.file.split(".")[1:-1] for each in built] == [
        ["dense", "tensorrt-fp32"],
        ["pruned", "tensorrt-fp32"],
        *(["pruned", "tensorrt-fp32", role] for role in VARIANTS),
    ]
    for each in built:
        engine = folder / "engines" / each.file
        assert check_manifest(engine, folder / each.manifest.onnx, HERE) == each.manifest
        assert json.loads(engine.with_suffix(".layers.json").read_text())["Layers"]
        assert [words[0] for words in each.trtexec] == ["trtexec"] * 2
        assert each.audit.written == {"fp32": 1}
    assert (folder / "engines/timing.11.4.0.106.sm8.0.cache").is_file()


@pytest.mark.usefixtures("machine")
def test_the_variants_can_be_left_out(folder: Path) -> None:
    assert len(build_folder(folder, BuildSettings(variants=False))) == 2


def retarget(folder: Path, target: str) -> None:
    report = json.loads((folder / "report.json").read_text())
    (folder / "report.json").write_text(json.dumps({**report, "target": target}))


@pytest.mark.usefixtures("machine")
def test_a_folder_for_another_runtime(folder: Path) -> None:
    retarget(folder, "openvino-int8")
    with pytest.raises(ArtefactError, match=r"got models for openvino-int8 .* --target tensorrt-fp32"):
        build_folder(folder, BuildSettings())


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_an_old_tensorrt_takes_its_own_target_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    retarget(folder, f"tensorrt-{precision}")
    monkeypatch.setattr(build, "import_tensorrt", lambda: fake_tensorrt("8.6.0"))
    with pytest.raises(UserError, match=r"got TensorRT 8\.6\.0 \| need 10 or later .*tensorrt8-fp32"):
        build_folder(folder, BuildSettings())


@pytest.mark.usefixtures("machine")
def test_a_folder_that_was_changed(folder: Path) -> None:
    (folder / "schedule.json").write_text("{}")
    with pytest.raises(ArtefactError, match="SHA256SUMS"):
        build_folder(folder, BuildSettings())
    assert not (folder / "engines").exists()


@pytest.mark.usefixtures("machine")
def test_a_plugin_that_is_not_there(folder: Path) -> None:
    with pytest.raises(ArtefactError, match="star-export plugin"):
        build_folder(folder, BuildSettings(plugin=folder / "none.so"))


@pytest.mark.skipif(importlib.util.find_spec("tensorrt") is not None, reason="TensorRT is here")
def test_without_tensorrt(folder: Path, star_export: Command) -> None:  # noqa: F811
    with pytest.raises(UserError, match="tensorrt"):
        build_folder(folder, BuildSettings())
    done = star_export("build", folder)
    assert done.code == 2
    assert "pip install tensorrt" in done.error
