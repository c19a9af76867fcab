"""The command lines of trtexec, and the times that it exports."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from exporter.core.base.errors import ArtefactError, UserError
from exporter.core.base.targets import RTX, TRT
from exporter.engines.settings import BuildSettings
from exporter.engines.trtexec import (
    again_command,
    build_command,
    load_command,
    load_of,
    read_runs,
    require_program,
    run_load,
    run_trtexec,
)
from tests.core.verify.stand_ins import put_on_path
from tests.engines.engines import BUILT, everything, manifest
from tests.engines.fake_trtexec import install_trtexec

IMAGE = (3, 224, 224)


def test_the_line_for_one_batch(tmp_path: Path) -> None:
    words = build_command(
        tmp_path / "m.onnx", IMAGE, 8, BuildSettings(), tensorrt="10.16.1"
    )
    assert words[0] == "trtexec"
    assert f"--loadInputs=images:{tmp_path}/inputs/images.batch8.bin" in words
    for flag in ("--minShapes", "--optShapes", "--maxShapes", "--shapes"):
        assert f"{flag}=images:8x3x224x224" in words
    assert {"--useCudaGraph", "--useSpinWait", "--stronglyTyped", "--noTF32"} <= set(
        words
    )
    assert not [word for word in words if "plugin" in word.lower()]


def test_flags_of_a_version() -> None:
    """Only 10 may choose strong typing; 11 leaves the copies out unless told, and uses a graph and spins."""
    words = build_command(
        Path("m.onnx"), IMAGE, 1, BuildSettings(), tensorrt="11.4.0.106"
    )
    assert "--includeDataTransfers" in words
    assert not {"--stronglyTyped", "--useCudaGraph", "--useSpinWait"} & set(words)
    ampere = build_command(
        Path("m.onnx"), IMAGE, 1, BuildSettings(hardware="ampere-plus")
    )
    assert "--hardwareCompatibilityLevel=ampere+" in ampere


def test_the_line_for_an_engine_that_is_there(tmp_path: Path) -> None:
    engine = tmp_path / "engines/m.engine"
    words = load_command(engine, manifest(), IMAGE, 8)
    assert words[:3] == ["trtexec", f"--loadEngine={engine}", "--useProfile=1"]
    assert f"--loadInputs=images:{tmp_path}/inputs/images.batch8.bin" in words
    assert not [
        word
        for word in words
        if "plugin" in word.lower() or "versionCompatible" in word
    ]
    stored = manifest(
        plugin_sha256="ab", serialise_plugin=True, version_compatible=True
    )
    assert load_command(engine, stored, IMAGE, 1)[-1] == "--versionCompatible"
    beside = load_command(engine, manifest(plugin_sha256="ab"), IMAGE, 1)
    assert beside[-1] == "--dynamicPlugins=libcdf_retain_plugin.so"
    beside = load_command(
        engine, manifest(plugin_sha256="ab"), IMAGE, 1, tmp_path / "lib.so"
    )
    assert beside[-1] == f"--dynamicPlugins={tmp_path}/lib.so"
    with pytest.raises(UserError, match="build --batches 3"):
        load_command(engine, manifest(), IMAGE, 3)


@pytest.mark.parametrize("version", ["10.16.1", "11.4.0.106"])
def test_what_one_line_saves_another_times_again(tmp_path: Path, version: str) -> None:
    settings, onnx = everything(tmp_path), tmp_path / "m.onnx"
    words = build_command(onnx, IMAGE, 8, settings, tensorrt=version)
    again = again_command(onnx, IMAGE, 8, settings, tensorrt=version)
    plan = f"{tmp_path}/m.batch8.trtexec{version[:2]}.plan"
    assert f"--saveEngine={plan}" in words
    assert again[:2] == ["trtexec", f"--loadEngine={plan}"]
    building = {"--onnx", "--saveEngine", "--minShapes", "--optShapes", "--maxShapes"}
    assert not building & {word.partition("=")[0] for word in again}
    assert "--versionCompatible" in again
    beside = replace(settings, serialise_plugin=False)
    loading = again_command(onnx, IMAGE, 8, beside, tensorrt=version)
    assert loading[-1] == f"--dynamicPlugins={tmp_path}/lib.so"


def test_tensorrt_for_rtx_measures_what_tensorrt_does() -> None:
    """It leaves copies out and uses a graph unless told otherwise, and would compile anew in each call."""
    settings = BuildSettings(runtime=RTX.name, sm=(86,), batches=(8,))
    words = build_command(Path("m.onnx"), IMAGE, 8, settings, tensorrt="1.7.1")
    again = again_command(Path("m.onnx"), IMAGE, 8, settings, tensorrt="1.7.1")
    for line in (words, again):
        assert line[0] == "tensorrt_rtx"
        assert {
            "--includeDataTransfers",
            "--runtimeCacheFile=m.batch8.tensorrt_rtx.cache",
        } <= set(line)
        assert not {"--useCudaGraph", "--useSpinWait", "--stronglyTyped"} & set(line)
    built = manifest(runtime=RTX.name, sm=(86,), built=replace(BUILT, tensorrt="1.7.1"))
    alone = load_command(Path("engines/m.engine"), built, IMAGE, 8, transfers=False)
    assert not {"--includeDataTransfers", "--noDataTransfers"} & set(alone)


def test_everything_that_can_be_asked_for(tmp_path: Path) -> None:
    settings = replace(everything(tmp_path), hardware="same-compute-capability")
    words = build_command(Path("m.onnx"), IMAGE, 1, settings)
    assert {
        "--hardwareCompatibilityLevel=sameComputeCapability",
        "--versionCompatible",
        f"--dynamicPlugins={tmp_path}/lib.so",
        f"--setPluginsToSerialize={tmp_path}/lib.so",
        "--builderOptimizationLevel=5",
        "--maxAuxStreams=0",
    } <= set(words)
    assert "--noTF32" not in words


def test_compute_alone() -> None:
    """11 leaves copies out unless told to include them, 10 includes them unless told not to."""
    engine = Path("engines/m.engine")
    eleven, ten = manifest(), manifest(built=replace(BUILT, tensorrt="10.16.1"))
    assert "--includeDataTransfers" in load_command(engine, eleven, IMAGE, 8)
    assert "--includeDataTransfers" not in load_command(
        engine, eleven, IMAGE, 8, transfers=False
    )
    assert "--noDataTransfers" not in load_command(engine, ten, IMAGE, 8)
    assert "--noDataTransfers" in load_command(engine, ten, IMAGE, 8, transfers=False)


def run(compute: float) -> dict[str, float]:
    """One record of --exportTimes, with the keys of samples/common/sampleReporting.cpp from 10 to 11.1."""
    ends = {
        f"{end}{part}Ms": 0.0
        for part in ("Enq", "H2d", "Compute", "D2h")
        for end in ("start", "end")
    }
    return {
        **ends,
        "h2dMs": 0.25,
        "computeMs": compute,
        "d2hMs": 0.5,
        "latencyMs": compute + 0.75,
    }


@pytest.mark.parametrize(
    "content",
    [
        None,
        "",
        "{}",
        "[]",
        '[{"latencyMs": 1}]',
        '["x"]',
        json.dumps([{**run(1.0), "d2hMs": "x"}]),
    ],
)
def test_times_that_are_none(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "times.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ArtefactError, match="trtexec exported"):
        read_runs(path)


RUNS = json.dumps([run(1.0), run(3.0)])
WRITES = f"for word; do case $word in --exportTimes=*) echo '{RUNS}' > ${{word#*=}};; esac; done"


def test_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_on_path("trtexec", WRITES, tmp_path, monkeypatch)
    times = run_trtexec(["trtexec", "--onnx=m.onnx"], "--duration=1")
    assert times.copy_in_ms == (0.25,) * 2
    assert times.compute_ms == (1.0, 3.0)
    assert times.copy_out_ms == (0.5,) * 2
    assert times.cuda_graph


WITHOUT = (
    "[W] The specified --useCudaGraph flag has been ignored. "
    "The inference will be launched without using CUDA graph launch.",  # 10
    "[W] CUDA graph capture failed. The inference will be launched without using CUDA graph.",  # 11.1
)


@pytest.mark.parametrize(
    "said", [*WITHOUT, "[I] Capturing CUDA graph for the current execution context"]
)
def test_a_run_says_whether_it_used_the_graph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    put_on_path("trtexec", f"{WRITES}; echo '{said}'", tmp_path, monkeypatch)
    assert run_trtexec(["trtexec"]).cuda_graph == (said not in WITHOUT)


def test_a_run_that_fails_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_on_path(
        "trtexec", "echo '[E] Model missing or invalid'; exit 1", tmp_path, monkeypatch
    )
    with pytest.raises(UserError, match="Model missing or invalid"):
        run_trtexec(["trtexec", "--onnx=m.onnx"])


def test_where_it_can_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_trtexec(tmp_path, monkeypatch)
    require_program(TRT, BUILT.tensorrt)
    monkeypatch.setenv("PATH", "/nowhere")
    for tool in (TRT, RTX):
        with pytest.raises(
            UserError, match=rf"{tool.program} \| got no such.*--no-gpu-time"
        ):
            require_program(tool, BUILT.tensorrt)
    with pytest.raises(UserError, match="no such program"):
        run_trtexec(["trtexec"])


@pytest.mark.parametrize("number", [101601, 110300])
def test_one_of_another_version_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    install_trtexec(tmp_path, monkeypatch, number)
    with pytest.raises(UserError, match=r"need that of the engines, 11\.4\.0\.106"):
        require_program(TRT, "11.4.0.106")
    if number == 101601:
        require_program(TRT, "10.16.1.11")


def test_a_program_that_is_not_nvidia_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_on_path("trtexec", "exit 1", tmp_path, monkeypatch)
    with pytest.raises(UserError, match="TensorRT an unknown version"):
        require_program(TRT, BUILT.tensorrt)


def test_load_of_runs_that_overlap() -> None:
    """100 runs of 4 images start a millisecond apart; the last one of the first stream ends after 102 ms."""
    runs = [
        {"startEnqMs": at, "endD2hMs": at + 3, "latencyMs": 1 + at / 100}
        for at in range(100)
    ]
    load = load_of(runs, 4, streams=3)
    assert (load.streams, load.runs) == (3, 100)
    assert load.images_per_s == pytest.approx(4 * 100 / 0.102)
    assert load.percentiles_ms == pytest.approx(
        {50: 1.5, 90: 1.9, 95: 1.95, 99: 1.99}, abs=0.011
    )


def test_a_load_asks_for_its_streams(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_trtexec(tmp_path, monkeypatch)
    words = [
        "trtexec",
        "--loadEngine=m.dense.engine",
        "--useProfile=0",
        "--shapes=images:8x3x4x4",
    ]
    assert run_load(words, 8, seconds=30, streams=2).streams == 2
