"""An engine on disk: what its manifest says of it, and that a half-written one is refused."""

import json
from pathlib import Path

import pytest

from exporter.errors import ArtefactError
from exporter.files import sha256_of
from exporter.runtimes.tensorrt import saving
from exporter.runtimes.tensorrt.builder import Engine
from exporter.runtimes.tensorrt.layer_info import layers_path
from exporter.runtimes.tensorrt.manifest import check_manifest, read_manifest
from exporter.runtimes.tensorrt.saving import save_engine
from exporter.runtimes.tensorrt.settings import BuildSettings
from tests.runtimes.tensorrt.fake_cuda import BUILT

ENGINE = Engine(b"plan", ('{"Layers": [{"Name": "gemm"}]}',), strongly_typed=True)
SETTINGS = BuildSettings(batches=(4,), tf32=True, optimization_level=5)


def test_an_engine_its_manifest_and_its_layers(tmp_path: Path) -> None:
    path, onnx = tmp_path / "engines/vit.engine", tmp_path / "vit.onnx"
    onnx.write_bytes(b"model")
    manifest = save_engine(ENGINE, path, onnx, SETTINGS, BUILT, schedule_sha256="ab")
    assert path.read_bytes() == b"plan"
    assert check_manifest(path, onnx, BUILT) == manifest
    assert (manifest.onnx, manifest.onnx_sha256) == ("vit.onnx", sha256_of(onnx))
    assert (manifest.schedule_sha256, manifest.plugin_sha256) == ("ab", "")
    assert (manifest.batches, manifest.tf32, manifest.optimization_level) == ((4,), True, 5)
    assert json.loads(layers_path(path).read_text()) == {"profiles": [{"Layers": [{"Name": "gemm"}]}]}


def test_the_manifest_comes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(engine: Path) -> Path:
        raise KeyboardInterrupt

    monkeypatch.setattr(saving, "layers_path", stopped)
    path, onnx = tmp_path / "vit.engine", tmp_path / "vit.onnx"
    onnx.write_bytes(b"model")
    with pytest.raises(KeyboardInterrupt):
        save_engine(ENGINE, path, onnx, SETTINGS, BUILT)
    with pytest.raises(ArtefactError, match="no such file"):
        read_manifest(path)
