"""An engine built, inspected and saved, on a stand-in for Polygraphy and TensorRT."""

import inspect
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from exporter.core.base.errors import ArtefactError, UserError
from exporter.core.base.targets import RTX
from exporter.engines import builder
from exporter.engines.builder import build_plan, inspected, save_engine
from exporter.engines.layers import layers_path
from exporter.engines.manifest import read_manifest
from exporter.engines.settings import BuildSettings
from exporter.engines.tool import Tool, tool_of
from tests.engines.engines import everything, manifest
from tests.engines.fake_tensorrt import (
    PolygraphyException,
    fake_tool,
)

VERSIONS = {"10.16.1.11": True, "11.4.0.106": False}


def test_an_engine_that_cannot_be_loaded_is_written_without_its_audit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse(plan: bytes) -> None:
        raise PolygraphyException("no memory")

    tool = fake_tool("11.4.0.106")
    tool.polygraphy.engine_from_bytes = refuse
    assert inspected(tool, b"plan") == ()
    assert "without its audit: the engine just built | got no memory" in caplog.text


@pytest.mark.parametrize("version", VERSIONS)
def test_defaults(version: str, tmp_path: Path) -> None:
    tool, cache = fake_tool(version), tmp_path / "cache"
    settings = BuildSettings(batches=(1, 8))
    plan = build_plan(tool, tmp_path / "m.onnx", settings, cache=cache)
    asked = tool.trt.asked
    assert plan == b"plan"
    assert asked["strongly_typed"] == VERSIONS[version]
    assert asked["parsed"] == str(tmp_path / "m.onnx")
    assert asked["profiles"] == [
        {"images": ((batch, 3, 4, 4),) * 3} for batch in (1, 8)
    ]
    assert asked["tf32"] is None
    for name in ("builder_optimization_level", "hardware_compatibility_level"):
        assert asked[name] is None  # TensorRT's own
    assert (asked["load_timing_cache"], cache.read_bytes()) == (None, b"timings")
    build_plan(tool, tmp_path / "m.onnx", settings, cache=cache)
    assert asked["load_timing_cache"] == str(cache)


def test_everything_that_can_be_asked_for(tmp_path: Path) -> None:
    tool = fake_tool("11.4.0.106")
    settings = replace(everything(tmp_path), hardware="ampere-plus")
    build_plan(tool, tmp_path / "m.onnx", settings)
    asked = tool.trt.asked
    assert asked["tf32"] == "TF32"
    assert asked["version_compatible"]
    assert asked["builder_optimization_level"] == 5
    assert asked["hardware_compatibility_level"] == "AMPERE_PLUS"
    assert asked["libraries"] == [str(tmp_path / "lib.so")]


@pytest.mark.parametrize("tool", [fake_tool("11.4.0"), fake_tool("1.7", runtime=RTX)])
def test_polygraphy_has_what_it_is_asked_for(tool: Tool, tmp_path: Path) -> None:
    """By name, in the real one."""
    for library in ("tensorrt_rtx", "polygraphy"):
        pytest.importorskip(library)
    real = tool_of(RTX)
    build_plan(tool, tmp_path / "m.onnx", BuildSettings(batches=(8,)), sm=86)
    config = real.create_config if tool.runtime.ahead else real.polygraphy.CreateConfig
    names = {
        name
        for kind in config.__mro__[:2]
        for name in inspect.signature(kind.__init__).parameters
    }
    asked = {"libraries", "parsed", "strongly_typed", "tf32"}
    assert tool.trt.asked.keys() - asked <= names
    if tool.runtime.ahead:
        assert tool.trt.asked["compute_capabilities"] == [(8, 6)]
    for name in vars(tool.polygraphy):
        assert hasattr(real.polygraphy, name)


def test_what_a_version_lacks_is_said(tmp_path: Path) -> None:
    tool = fake_tool("10.7.0.23")
    tool.trt.HardwareCompatibilityLevel = SimpleNamespace(AMPERE_PLUS=1)
    settings = BuildSettings(hardware="same-compute-capability")
    lacks = r"TensorRT 10\.7\.0\.23, which has no SAME_COMPUTE_CAPABILITY"
    with pytest.raises(UserError, match=lacks):
        build_plan(tool, tmp_path / "m.onnx", settings)


def test_refusals_in_the_words_of_tensorrt(tmp_path: Path) -> None:
    onnx, settings = tmp_path / "m.onnx", BuildSettings(batches=(8,))
    for tool, words in (
        (fake_tool("11.4.0", parses=False), "no importer for CdfRetain"),
        (fake_tool("11.4.0", builds=False), "no implementation for node context_01"),
    ):
        with pytest.raises(ArtefactError, match=rf"m\.onnx \| got .*{words}"):
            build_plan(tool, onnx, settings)
    free = fake_tool("11.4.0", input_shape=(-1, -1))
    build_plan(free, onnx, settings, widths={"images": 138})
    assert free.trt.asked["profiles"] == [{"images": ((8, 1), (8, 138), (8, 138))}]
    with pytest.raises(UserError, match='layout = "padded"'):
        build_plan(free, onnx, settings)


def test_layers_of_an_earlier_engine_do_not_stay(tmp_path: Path) -> None:
    path = tmp_path / "vit.engine"
    save_engine(path, b"plan", manifest(), ({"Layers": []},))
    assert layers_path(path).exists()
    save_engine(path, b"plan", manifest())
    assert not layers_path(path).exists()


def test_the_manifest_comes_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(engine: Path) -> Path:
        raise KeyboardInterrupt

    monkeypatch.setattr(builder, "layers_path", stopped)
    path = tmp_path / "vit.engine"
    with pytest.raises(KeyboardInterrupt):
        save_engine(path, b"plan", manifest())
    with pytest.raises(ArtefactError, match=r"vit\.json \| got No such file"):
        read_manifest(path)
