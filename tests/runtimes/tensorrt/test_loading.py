"""Checks of an engine before TensorRT loads it; a fake replaces TensorRT."""

from pathlib import Path
from typing import Any

import pytest

from exporter.errors import ArtefactError
from exporter.files import sha256_of
from exporter.formats.canonical_json import save_json
from exporter.runtimes.tensorrt import loading
from exporter.runtimes.tensorrt.loading import load_engine
from exporter.runtimes.tensorrt.manifest import manifest_path
from tests.runtimes.tensorrt.fake_cuda import BUILT, FakeCuda, FakeEngine, loaded_engine, manifest
from tests.runtimes.tensorrt.fake_tensorrt import fake_tensorrt


@pytest.fixture
def trt(monkeypatch: pytest.MonkeyPatch) -> Any:
    fake = fake_tensorrt("11.4.0.106")
    monkeypatch.setattr(loading, "import_tensorrt", lambda: fake)
    monkeypatch.setattr(loading, "this_machine", lambda version: BUILT)
    return fake


def built(folder: Path, **different: Any) -> tuple[Path, Path]:
    """An engine, its manifest and the model it was built of."""
    engine, onnx = folder / "m.engine", folder / "m.onnx"
    engine.write_bytes(b"plan")
    onnx.write_bytes(b"model")
    told = manifest(engine_sha256=sha256_of(engine), onnx_sha256=sha256_of(onnx), onnx=onnx.name, **different)
    save_json(told, manifest_path(engine))
    return engine, onnx


def test_an_engine_of_this_machine(trt: Any, tmp_path: Path) -> None:
    engine, onnx = built(tmp_path)
    loaded = load_engine(engine, onnx)
    assert (loaded.name, loaded.trt, loaded.manifest.onnx) == ("m.engine", trt, "m.onnx")
    assert load_engine(engine, onnx, name="mine").name == "mine"
    assert trt.asked["libraries"] == []


def test_an_engine_of_another_model(trt: Any, tmp_path: Path) -> None:
    engine, onnx = built(tmp_path)
    onnx.write_bytes(b"another")
    with pytest.raises(ArtefactError, match=r"m\.engine"):
        load_engine(engine, onnx)


def test_a_plan_that_tensorrt_does_not_take(
    trt: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, onnx = built(tmp_path)
    monkeypatch.setattr(trt.Runtime, "deserialize_cuda_engine", lambda self, plan: None)
    with pytest.raises(ArtefactError, match=r"got no reason \| need an engine that TensorRT loads"):
        load_engine(engine, onnx)


def test_a_plugin_that_is_not_carried_is_asked_for(trt: Any, tmp_path: Path) -> None:
    engine, onnx = built(tmp_path, plugin_sha256="0" * 64)
    with pytest.raises(ArtefactError, match="plugin"):
        load_engine(engine, onnx)


def test_a_plugin_is_registered_once_and_before_the_engine(
    trt: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "lib.so"
    library.write_bytes(b"library")
    monkeypatch.setattr(loading, "checked_library", lambda path, version: path)
    # An older star-export stored it in an engine that is not version-compatible, which TensorRT does not promise.
    for told in ({}, {"plugin_serialised": True}):
        engine, onnx = built(tmp_path, plugin_sha256=sha256_of(library), **told)
        load_engine(engine, onnx, plugin=library)
    assert trt.asked["libraries"] == [str(library)]


def test_a_plugin_that_the_engine_contains(trt: Any, tmp_path: Path) -> None:
    told = {"plugin_sha256": "0" * 64, "plugin_serialised": True, "version_compatible": True}
    load_engine(*built(tmp_path, **told))
    assert trt.asked["libraries"] == []


def test_tensors_by_their_side() -> None:
    loaded = loaded_engine(FakeEngine(FakeCuda(), [1.0]))
    assert (loaded.tensors("INPUT"), loaded.tensors("OUTPUT")) == (("images",), ("logits",))
