"""TensorRT's table: an engine for each network, timm's own among them; TensorRT is stood in for."""

from pathlib import Path

import pytest

from exporter.engines.manifest import read_manifest
from tests.benchmarks.scripts import script
from tests.engines.engines import BUILT
from tests.engines.fake_tensorrt import fake_tool
from tests.engines.fake_trtexec import install_trtexec
from tests.exhaustive import mark_further

module = script("gpu/tensorrt_engines.py")
files = script("gpu/case.py")


def files_of(model, methods, target, folder, layouts):  # type: ignore[no-untyped-def]
    """Files of any content: the stand-in for TensorRT reads none."""
    folder.mkdir(parents=True, exist_ok=True)
    stock = () if target.quantization else (files.STOCK,)
    found = {
        name: folder / f"{model}.{name}.{target.name}.onnx"
        for name in ("dense", *stock, *methods)
    }
    for path in found.values():
        path.write_bytes(b"model")
    return found


@pytest.fixture
def tensorrt(monkeypatch: pytest.MonkeyPatch) -> None:
    tool = fake_tool("11.4.0.106", input_shape=(-1, 3, 32, 32))
    monkeypatch.setattr(module, "tool_of", lambda runtime: tool)
    monkeypatch.setattr(module, "this_machine", lambda version: BUILT)
    monkeypatch.setattr(module, "model_files", files_of)


@pytest.mark.usefixtures("tensorrt")
@pytest.mark.parametrize("mode", mark_further(module.MODES, ["fp32", "int8"]))
def test_an_engine_of_each_and_the_second_call_builds_none(
    mode: str, tiny_deit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = install_trtexec(tmp_path, monkeypatch)
    plugin = tmp_path / "lib.so"
    plugin.write_bytes(b"library")
    case = files.Case(tiny_deit, mode, 8, 5, tmp_path / "tensorrt", plugin)
    module.require()
    times = module.prepared(case)()
    stock = (files.STOCK,) * (mode not in ("int8", "fp8"))
    names = [
        "dense",
        *stock,
        "STAR 0.7",
        "STAR 0.5",
        "matching 0.9",
        "ToMe 0.7",
        "a-STAR 0.7",
    ]
    if mode == module.SHRINKING:
        names = ["dense", "a-STAR 0.7", "a-STAR 0.7, shrinking"]
    assert list(times) == names
    # what the stand-in for trtexec says
    assert times["dense"].median_ms == pytest.approx(4.1)
    engines = sorted(
        (tmp_path / "tensorrt" / mode.replace(", ", "-") / "engines").glob(
            "*.batch8.engine"
        )
    )
    assert len(engines) == len(times)
    for engine in engines:
        manifest = read_manifest(engine)
        compares = "matching" in engine.name and mode != "fp32"
        assert manifest.settings.batches == (8,)
        assert manifest.settings.tf32 == (compares or mode == "tf32")
        assert module.TARGETS[mode].name in manifest.onnx
        assert manifest.needs_plugin == ("shrinking" in engine.name)
    assert "dense" in called.read_text()
    monkeypatch.setattr(module, "build_plan", None)
    assert module.prepared(case)().keys() == times.keys()
