"""The command lines."""

from dataclasses import replace
from pathlib import Path

import pytest

from exporter.errors import RecipeError, UserError
from exporter.runtimes.tensorrt.settings import BuildSettings
from exporter.runtimes.tensorrt.trtexec import build_command, load_command
from tests.runtimes.tensorrt.fake_cuda import BUILT, manifest

IMAGE = (3, 224, 224)


def test_the_line_for_one_batch(tmp_path: Path) -> None:
    words = build_command(tmp_path / "m.onnx", IMAGE, 8, BuildSettings(), tensorrt="10.16.1")
    assert words[0] == "trtexec"
    assert f"--loadInputs=images:{tmp_path}/inputs/images.batch8.bin" in words
    for flag in ("--minShapes", "--optShapes", "--maxShapes", "--shapes"):
        assert f"{flag}=images:8x3x224x224" in words
    assert {"--useCudaGraph", "--useSpinWait", "--stronglyTyped", "--noTF32"} <= set(words)
    assert not [word for word in words if "plugin" in word.lower()]


@pytest.mark.parametrize("version", ["8.6.0", "11.4.0.106"])
def test_strong_typing_is_asked_for_where_it_is_a_choice(version: str) -> None:
    assert "--stronglyTyped" not in build_command(Path("m.onnx"), IMAGE, 1, BuildSettings(), tensorrt=version)


def test_11_leaves_the_copies_out_unless_told() -> None:
    words = build_command(Path("m.onnx"), IMAGE, 1, BuildSettings(), tensorrt="11.4.0.106")
    assert "--includeDataTransfers" in words
    assert not {"--useCudaGraph", "--useSpinWait"} & set(words)  # there by default, the flags deprecated


def test_ampere_has_another_name() -> None:
    words = build_command(Path("m.onnx"), IMAGE, 1, BuildSettings(hardware="ampere-plus"))
    assert "--hardwareCompatibilityLevel=ampere+" in words


def test_the_line_for_an_engine_that_is_there(tmp_path: Path) -> None:
    engine = tmp_path / "engines/m.engine"
    words = load_command(engine, manifest(), IMAGE, 8)
    assert words[:3] == ["trtexec", f"--loadEngine={engine}", "--useProfile=1"]
    assert f"--loadInputs=images:{tmp_path}/inputs/images.batch8.bin" in words
    assert not [word for word in words if "plugin" in word.lower() or "versionCompatible" in word]
    stored = manifest(plugin_sha256="ab", plugin_serialised=True, version_compatible=True)
    assert load_command(engine, stored, IMAGE, 1)[-1] == "--versionCompatible"
    # Asked for without version compatibility, the library is not in the engine.
    beside = load_command(engine, manifest(plugin_sha256="ab", plugin_serialised=True), IMAGE, 1)
    assert beside[-1] == "--dynamicPlugins=libcdf_retain_plugin.so"
    beside = load_command(engine, manifest(plugin_sha256="ab"), IMAGE, 1, tmp_path / "lib.so")
    assert beside[-1] == f"--dynamicPlugins={tmp_path}/lib.so"
    with pytest.raises(UserError, match="build --batches 3"):
        load_command(engine, manifest(), IMAGE, 3)


def test_everything_that_can_be_asked_for(tmp_path: Path) -> None:
    settings = BuildSettings(
        workspace_mib=512,
        hardware="same-compute-capability",
        version_compatible=True,
        tf32=True,
        plugin=tmp_path / "lib.so",
        serialise_plugin=True,
        optimization_level=5,
        aux_streams=0,
    )
    words = build_command(Path("m.onnx"), IMAGE, 1, settings, engine="m.engine")
    assert {
        "--memPoolSize=workspace:512",
        "--hardwareCompatibilityLevel=sameComputeCapability",
        "--versionCompatible",
        f"--dynamicPlugins={tmp_path}/lib.so",
        f"--setPluginsToSerialize={tmp_path}/lib.so",
        "--saveEngine=m.engine",
        "--builderOptimizationLevel=5",
        "--maxAuxStreams=0",
    } <= set(words)
    assert "--noTF32" not in words


@pytest.mark.parametrize(
    "wrong",
    [{"batches": ()}, {"batches": (0,)}, {"batches": (8, 1)}, {"workspace_mib": -1}, {"hardware": "all"}],
)
def test_settings_that_build_nothing(wrong: dict[str, object]) -> None:
    with pytest.raises(RecipeError):
        BuildSettings(**wrong)  # type: ignore[arg-type]


def test_profiles() -> None:
    assert BuildSettings(batches=(1, 8, 32)).profiles == ((1, 1), (8, 8), (32, 32))
    assert BuildSettings(batches=(4, 32), any_batch=True).profiles == ((1, 4), (5, 32))


def test_compute_alone() -> None:
    """11 leaves copies out unless told to include them, 10 includes them unless told not to."""
    engine = Path("engines/m.engine")
    eleven, ten = manifest(), manifest(built=replace(BUILT, tensorrt="10.16.1"))
    assert "--includeDataTransfers" in load_command(engine, eleven, IMAGE, 8)
    assert "--includeDataTransfers" not in load_command(engine, eleven, IMAGE, 8, transfers=False)
    assert "--noDataTransfers" not in load_command(engine, ten, IMAGE, 8)
    assert "--noDataTransfers" in load_command(engine, ten, IMAGE, 8, transfers=False)
