"""An engine on another machine, or of another model, is refused by what differs."""

from dataclasses import replace
from pathlib import Path

import pytest

from exporter.errors import ArtefactError
from exporter.runtimes.tensorrt.manifest import (
    Built,
    build_settings,
    check_manifest,
    manifest_path,
)
from exporter.runtimes.tensorrt.plugin_library import LIBRARY
from exporter.runtimes.tensorrt.settings import BuildSettings
from tests.runtimes.tensorrt.fake_cuda import saved_engine

HERE = Built("10.16.1.11", "13.0", "580.65", "NVIDIA A100-SXM4-80GB", "8.0")


def make(folder: Path, **different: object) -> tuple[Path, Path]:
    return saved_engine(folder, **{"built": HERE, **different})


def test_the_machine_it_was_built_on(tmp_path: Path) -> None:
    assert check_manifest(*make(tmp_path), HERE).batches == (1, 8)


@pytest.mark.parametrize(
    ("here", "named"),
    [
        (replace(HERE, tensorrt="11.4.0.106"), "tensorrt 10.16.1.11 | need tensorrt 11.4.0.106"),
        (replace(HERE, gpu="NVIDIA H200"), "gpu NVIDIA A100-SXM4-80GB | need gpu NVIDIA H200"),
        (replace(HERE, sm="9.0"), "sm 8.0 | need sm 9.0"),
    ],
)
def test_another_machine(tmp_path: Path, here: Built, named: str) -> None:
    with pytest.raises(ArtefactError, match="builds it again") as refused:
        check_manifest(*make(tmp_path), here)
    assert named in str(refused.value)


def test_another_driver_will_do(tmp_path: Path) -> None:
    check_manifest(*make(tmp_path), replace(HERE, driver="575.1", cuda="12.9"))


def test_compatible_engines(tmp_path: Path) -> None:
    other = replace(HERE, gpu="NVIDIA L4", sm="8.9")
    check_manifest(*make(tmp_path, hardware="AMPERE_PLUS"), other)
    with pytest.raises(ArtefactError, match=r"sm 8\.0"):
        check_manifest(*make(tmp_path, hardware="SAME_COMPUTE_CAPABILITY"), other)
    later = replace(HERE, tensorrt="10.20.0.1")
    check_manifest(*make(tmp_path, version_compatible=True), later)


@pytest.mark.parametrize(
    ("here", "loads"),
    {"10.16.1.11": True, "10.20.0.1": True, "11.4.0.106": True, "10.9.0.34": False, "10.16.0": False}.items(),
)
def test_version_compatible_engines_load_in_later_versions(tmp_path: Path, here: str, loads: bool) -> None:
    engine, onnx = make(tmp_path, version_compatible=True)
    machine = replace(HERE, tensorrt=here)
    if loads:
        check_manifest(engine, onnx, machine)
        return
    with pytest.raises(ArtefactError, match=rf"of TensorRT 10\.16\.1\.11 \| need one of {here}, .*earlier"):
        check_manifest(engine, onnx, machine)


def test_another_model_engine_or_plugin(tmp_path: Path) -> None:
    engine, onnx = make(tmp_path)
    onnx.write_bytes(b"another")
    with pytest.raises(ArtefactError, match="an engine of ONNX sha256"):
        check_manifest(engine, onnx, HERE)
    engine, onnx = make(tmp_path)
    engine.write_bytes(b"cut")
    with pytest.raises(ArtefactError, match="of plan sha256"):
        check_manifest(engine, onnx, HERE)
    library = tmp_path / "lib.so"
    library.write_bytes(b"library")
    engine, onnx = make(tmp_path, plugin_sha256="0" * 64)
    with pytest.raises(ArtefactError, match="an engine of plugin sha256"):
        check_manifest(engine, onnx, HERE, library)


def test_what_is_missing_or_broken(tmp_path: Path) -> None:
    engine, onnx = make(tmp_path)
    manifest_path(engine).write_text("{}")
    with pytest.raises(ArtefactError, match="EngineManifest"):
        check_manifest(engine, onnx, HERE)
    manifest_path(engine).unlink()
    with pytest.raises(ArtefactError, match="no such file"):
        check_manifest(engine, onnx, HERE)
    engine.unlink()
    with pytest.raises(ArtefactError, match="star-export build FOLDER"):
        check_manifest(engine, onnx, HERE)


def test_a_plugin_is_stored_in_version_compatible_engines_alone(tmp_path: Path) -> None:
    told = {"plugin_sha256": "ab", "plugin_serialised": True}
    for compatible in (False, True):
        found = check_manifest(*make(tmp_path, **told, version_compatible=compatible), HERE)
        assert found.needs_plugin is not compatible
        assert build_settings(found).serialise_plugin is compatible
    assert not check_manifest(*make(tmp_path), HERE).needs_plugin


def test_the_settings_of_an_engine(tmp_path: Path) -> None:
    plain = check_manifest(*make(tmp_path), HERE)
    assert build_settings(plain) == BuildSettings(batches=(1, 8), serialise_plugin=False)
    told = {"workspace_mib": 512, "tf32": True, "hardware": "AMPERE_PLUS", "version_compatible": True}
    told |= {"optimization_level": 4, "aux_streams": 2}
    special = check_manifest(*make(tmp_path, **told, plugin_sha256="ab", plugin_serialised=True), HERE)
    settings = build_settings(special)
    assert settings.serialise_plugin
    assert (settings.optimization_level, settings.aux_streams) == (4, 2)
    assert (settings.workspace_mib, settings.tf32, settings.version_compatible) == (512, True, True)
    assert (settings.hardware, settings.plugin) == ("ampere-plus", Path(LIBRARY))
    assert build_settings(special, tmp_path / "lib.so").plugin == tmp_path / "lib.so"
