"""TensorRT's table: an engine for each network, timm's own among them; TensorRT is stood in for."""

from pathlib import Path

import pytest

from exporter.runtimes.tensorrt.manifest import read_manifest
from tests.benchmarks.scripts import script
from tests.runtimes.tensorrt.fake_cuda import BUILT
from tests.runtimes.tensorrt.fake_tensorrt import fake_tensorrt
from tests.runtimes.tensorrt.fake_trtexec import install_trtexec

module = script("gpu/tensorrt_engines.py")
files = script("gpu/model_files.py")
Case = script("gpu/case.py").Case


def files_of(model, methods, target, folder):  # type: ignore[no-untyped-def]
    """Files of any content: the stand-in for TensorRT reads none."""
    folder.mkdir(parents=True, exist_ok=True)
    found = {name: folder / f"{model}.{name}.{target.name}.onnx" for name in ("dense", files.STOCK, *methods)}
    for path in found.values():
        path.write_bytes(b"model")
    return found


@pytest.mark.parametrize("mode", module.MODES)
def test_an_engine_of_each_and_the_second_call_builds_none(
    mode: str, tiny_deit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trt = fake_tensorrt("11.4.0.106", input_shape=(-1, 3, 32, 32))
    monkeypatch.setattr(module, "import_tensorrt", lambda: trt)
    monkeypatch.setattr(module, "this_machine", lambda version: BUILT)
    monkeypatch.setattr(module, "model_files", files_of)
    install_trtexec(tmp_path, monkeypatch)
    case = Case(tiny_deit, mode, 8, 5, tmp_path / "tensorrt")
    module.require()
    times = module.prepared(case)()
    assert list(times) == ["dense", files.STOCK, "STAR 0.7", "STAR 0.5", "a-STAR 0.7"]
    assert times["dense"].median_ms == pytest.approx(4.1)  # what the stand-in for trtexec says
    engines = sorted((tmp_path / "tensorrt" / mode / "engines").glob("*.batch8.engine"))
    assert len(engines) == 5
    for engine in engines:
        manifest = read_manifest(engine)
        assert (manifest.batches, manifest.tf32) == ((8,), mode == "tf32")
        assert ("fp16" in manifest.onnx) == (mode == "fp16")
    monkeypatch.setattr(module, "build_engine", None)
    assert module.prepared(case)().keys() == times.keys()
