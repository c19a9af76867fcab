"""The calls of a build to TensorRT, version by version. No engine is built: see docs/verification.md."""

from pathlib import Path

import pytest

from exporter.errors import ArtefactError, UserError
from exporter.runtimes.tensorrt.builder import build_engine
from exporter.runtimes.tensorrt.settings import BuildSettings
from exporter.runtimes.tensorrt.tensorrt_api import import_tensorrt
from tests.runtimes.tensorrt.fake_tensorrt import fake_tensorrt

VERSIONS = ("8.6.0", "10.16.1.11", "11.4.0.106")


@pytest.mark.parametrize(
    ("version", "wanted"),
    {"8.6.0": {"EXPLICIT_BATCH"}, "10.16.1.11": {"STRONGLY_TYPED"}, "11.4.0.106": set()}.items(),
)
def test_network_flags_by_name(version: str, wanted: set[str], tmp_path: Path) -> None:
    trt = fake_tensorrt(version)
    engine = build_engine(trt, tmp_path / "m.onnx", BuildSettings(), tmp_path / "cache")
    flags = trt.NetworkDefinitionCreationFlag
    assert trt.asked["network_flags"] == sum(1 << int(flags[name]) for name in wanted)
    assert engine.strongly_typed == (version != "8.6.0")


@pytest.mark.parametrize("version", VERSIONS)
def test_defaults(version: str, tmp_path: Path) -> None:
    trt = fake_tensorrt(version)
    build_engine(trt, tmp_path / "m.onnx", BuildSettings(batches=(1, 8)), tmp_path / "cache")
    asked = trt.asked
    assert asked["profiles"] == [("images", ((batch, 3, 4, 4),) * 3) for batch in (1, 8)]
    assert (asked["flags"], asked["cleared"]) == (set(), {"TF32"})
    assert asked["config"].profiling_verbosity.name == "DETAILED"
    assert not hasattr(asked["config"], "builder_optimization_level")  # TensorRT's own default
    assert asked["parsed"] == str(tmp_path / "m.onnx")
    assert (tmp_path / "cache").read_bytes() == b"more"


def test_everything_that_can_be_asked_for(tmp_path: Path) -> None:
    trt, cache = fake_tensorrt("11.4.0.106"), tmp_path / "cache"
    cache.write_bytes(b"old")
    settings = BuildSettings(
        workspace_mib=512,
        hardware="ampere-plus",
        version_compatible=True,
        tf32=True,
        plugin=tmp_path / "lib.so",
        serialise_plugin=True,
        optimization_level=5,
        aux_streams=0,
    )
    build_engine(trt, tmp_path / "m.onnx", settings, cache)
    asked = trt.asked
    assert asked["pool"] == ("WORKSPACE", 512 << 20)
    assert asked["flags"] == {"TF32", "VERSION_COMPATIBLE"}
    assert (asked["config"].builder_optimization_level, asked["config"].max_aux_streams) == (5, 0)
    assert asked["config"].hardware_compatibility_level.name == "AMPERE_PLUS"
    assert asked["libraries"] == asked["config"].plugins_to_serialize == [str(tmp_path / "lib.so")]
    assert cache.read_bytes() == b"oldmore"


def test_what_a_version_lacks_is_said(tmp_path: Path) -> None:
    settings = BuildSettings(hardware="same-compute-capability")
    with pytest.raises(UserError, match=r"TensorRT 8\.6\.0, which has no .*SAME_COMPUTE_CAPABILITY"):
        build_engine(fake_tensorrt("8.6.0"), tmp_path / "m.onnx", settings, tmp_path / "cache")


def test_refusals_in_the_words_of_tensorrt(tmp_path: Path) -> None:
    for trt, words in (
        (fake_tensorrt("11.4.0.106", parses=False), "no importer for CdfRetain"),
        (fake_tensorrt("11.4.0.106", builds=False), "no implementation for node context_01/softmax"),
    ):
        with pytest.raises(ArtefactError, match=words):
            build_engine(trt, tmp_path / "m.onnx", BuildSettings(), tmp_path / "cache")
    free = fake_tensorrt("11.4.0.106", input_shape=(-1, -1))
    widths, eight = {"images": 138}, BuildSettings(batches=(8,))
    build_engine(free, tmp_path / "m.onnx", eight, tmp_path / "cache", widths)
    assert free.asked["profiles"] == [("images", ((8, 1), (8, 138), (8, 138)))]
    with pytest.raises(UserError, match='layout = "padded"'):
        build_engine(free, tmp_path / "m.onnx", BuildSettings(), tmp_path / "cache")


def test_without_tensorrt() -> None:
    try:
        import_tensorrt()
    except UserError as error:
        assert "pip install" in str(error)
    else:
        pytest.skip("TensorRT is here")
