"""An engine built, inspected and saved, on a stand-in for TensorRT."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from exporter.core.base.errors import ArtefactError, UserError
from exporter.engines import builder
from exporter.engines.builder import (
    build_engine,
    inspect_profiles,
    save_engine,
)
from exporter.engines.layer_info import layers_path, read_layers
from exporter.engines.manifest import (
    check_manifest,
    manifest_of,
    read_manifest,
)
from exporter.engines.settings import BuildSettings
from exporter.engines.tensorrt_api import error_log
from tests.engines.engines import BUILT, everything, manifest
from tests.engines.fake_tensorrt import InspectedEngine, fake_tensorrt


def inspected(engine: Any, version: str = "11.4.0.106") -> tuple[str, ...]:
    trt = fake_tensorrt(version)
    trt.Runtime.deserialize_cuda_engine = lambda self, plan: engine
    return inspect_profiles(trt, error_log(trt), b"plan")


def test_each_profile_with_its_types() -> None:
    texts = inspected(InspectedEngine((1, 8, 32)))
    layers = [read_layers(text) for text in texts]
    assert [[each.name for each in found] for found in layers] == [
        ["gemm 0", "_gemm_mha_v2"],
        ["gemm 1"],
        ["gemm 2"],
    ]
    assert {
        tensor.dtype for found in layers for each in found for tensor in each.writes
    } == {"fp32"}


def test_an_engine_that_does_not_load() -> None:
    with pytest.raises(ArtefactError, match="the engine just built"):
        inspected(None)


def test_a_profile_that_is_refused() -> None:
    with pytest.raises(ArtefactError, match="profile 0 of the engine just built"):
        inspected(InspectedEngine((1,), refuses=True))


def test_a_failed_inspection_keeps_the_finished_engine(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trt = fake_tensorrt("11.4.0.106")
    trt.Runtime.deserialize_cuda_engine = lambda self, plan: None
    (tmp_path / "m.onnx").write_bytes(b"model")
    plan, layers = build_engine(
        trt, tmp_path / "m.onnx", BuildSettings(), tmp_path / "cache"
    )
    assert (plan, layers) == (b"plan", ())
    assert "without its audit: the engine just built" in caplog.text
    path = tmp_path / "m.engine"
    layers_path(path).write_text("of an earlier engine")
    save_engine(path, plan, manifest(), layers)
    assert path.read_bytes() == b"plan"
    assert not layers_path(path).exists()


VERSIONS = ("10.16.1.11", "11.4.0.106")


@pytest.mark.parametrize(
    ("version", "wanted"),
    {
        "10.16.1.11": 1 << 1,
        "11.4.0.106": 0,
    }.items(),  # STRONGLY_TYPED has another number in each
)
def test_network_flags_by_name(version: str, wanted: int, tmp_path: Path) -> None:
    trt = fake_tensorrt(version)
    build_engine(trt, tmp_path / "m.onnx", BuildSettings(), tmp_path / "cache")
    assert trt.asked["network_flags"] == wanted


@pytest.mark.parametrize("version", VERSIONS)
def test_defaults(version: str, tmp_path: Path) -> None:
    trt = fake_tensorrt(version)
    build_engine(
        trt, tmp_path / "m.onnx", BuildSettings(batches=(1, 8)), tmp_path / "cache"
    )
    asked = trt.asked
    assert asked["profiles"] == [
        ("images", ((batch, 3, 4, 4),) * 3) for batch in (1, 8)
    ]
    assert (asked["flags"], asked["cleared"]) == (set(), {"TF32"})
    assert asked["config"].profiling_verbosity.name == "DETAILED"
    # TensorRT's own default
    assert not hasattr(asked["config"], "builder_optimization_level")
    assert asked["parsed"] == str(tmp_path / "m.onnx")
    assert (tmp_path / "cache").read_bytes() == b"more"


def test_everything_that_can_be_asked_for(tmp_path: Path) -> None:
    trt, cache = fake_tensorrt("11.4.0.106"), tmp_path / "cache"
    cache.write_bytes(b"old")
    settings = replace(everything(tmp_path), hardware="ampere-plus")
    build_engine(trt, tmp_path / "m.onnx", settings, cache)
    asked = trt.asked
    assert asked["flags"] == {"TF32", "VERSION_COMPATIBLE"}
    assert asked["config"].builder_optimization_level == 5
    assert asked["config"].max_aux_streams == 0
    assert asked["config"].hardware_compatibility_level.name == "AMPERE_PLUS"
    assert (
        asked["libraries"]
        == asked["config"].plugins_to_serialize
        == [str(tmp_path / "lib.so")]
    )
    assert cache.read_bytes() == b"oldmore"


def test_what_a_version_lacks_is_said(tmp_path: Path) -> None:
    trt = fake_tensorrt("10.7.0.23")
    settings = BuildSettings(hardware="same-compute-capability")
    trt.HardwareCompatibilityLevel = SimpleNamespace(NONE=0, AMPERE_PLUS=1)
    with pytest.raises(
        UserError,
        match=r"TensorRT 10\.7\.0\.23, which has no .*SAME_COMPUTE_CAPABILITY",
    ):
        build_engine(trt, tmp_path / "m.onnx", settings, tmp_path / "cache")


def test_refusals_in_the_words_of_tensorrt(tmp_path: Path) -> None:
    for trt, words in (
        (fake_tensorrt("11.4.0.106", parses=False), "no importer for CdfRetain"),
        (
            fake_tensorrt("11.4.0.106", builds=False),
            "no implementation for node context_01/softmax",
        ),
    ):
        with pytest.raises(ArtefactError, match=words):
            build_engine(trt, tmp_path / "m.onnx", BuildSettings(), tmp_path / "cache")
    free = fake_tensorrt("11.4.0.106", input_shape=(-1, -1))
    widths, eight = {"images": 138}, BuildSettings(batches=(8,))
    build_engine(free, tmp_path / "m.onnx", eight, tmp_path / "cache", widths)
    assert free.asked["profiles"] == [("images", ((8, 1), (8, 138), (8, 138)))]
    with pytest.raises(UserError, match='layout = "padded"'):
        build_engine(free, tmp_path / "m.onnx", BuildSettings(), tmp_path / "cache")


def test_an_engine_its_manifest_and_its_layers(tmp_path: Path) -> None:
    path, onnx = tmp_path / "engines/vit.engine", tmp_path / "vit.onnx"
    onnx.write_bytes(b"model")
    made = manifest_of(b"plan", onnx, BuildSettings(batches=(4,)), BUILT)
    save_engine(path, b"plan", made, ('{"Layers": [{"Name": "gemm"}]}',))
    assert path.read_bytes() == b"plan"
    assert check_manifest(path, onnx, BUILT) == made
    assert json.loads(layers_path(path).read_text()) == {
        "profiles": [{"Layers": [{"Name": "gemm"}]}]
    }


def test_the_manifest_comes_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(engine: Path) -> Path:
        raise KeyboardInterrupt

    monkeypatch.setattr(builder, "layers_path", stopped)
    path = tmp_path / "vit.engine"
    with pytest.raises(KeyboardInterrupt):
        save_engine(path, b"plan", manifest())
    with pytest.raises(ArtefactError, match="no such file"):
        read_manifest(path)
