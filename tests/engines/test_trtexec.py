"""The command lines of trtexec, and the times that it exports."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from exporter.core.base.artefact import read_pair
from exporter.core.base.errors import ArtefactError, UserError
from exporter.core.base.targets import RTX, TENSORRT, TRT
from exporter.core.base.vocabulary import Layout, Method
from exporter.engines import trtexec
from exporter.engines.settings import BuildSettings
from exporter.engines.trtexec import (
    SCRIPT,
    load_command,
    load_of,
    read_runs,
    require_program,
    run_trtexec,
    save_script,
)
from tests.core.verify.stand_ins import put_on_path
from tests.engines.engines import BUILT, everything, manifest
from tests.engines.fake_trtexec import install_trtexec
from tests.folders import write_folder

IMAGE = (3, 224, 224)


# It notes how it was called.
NOTES = (
    """case $1 in --help) echo '[TensorRT v{number}]';; *) echo "$@" >> called;; esac"""
)


def called_by_the_script(
    folder: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> list[list[str]]:
    """The words of each call of trtexec, by the script of a folder, in that folder."""
    note = NOTES.format(number=number)
    put_on_path("trtexec", note, folder.parent / f"bin{number}", monkeypatch)
    subprocess.run(["sh", SCRIPT], cwd=folder, check=True)
    lines = (folder / "called").read_text().splitlines()
    (folder / "called").unlink()
    return [line.split() for line in lines]


def scripted(folder: Path, settings: BuildSettings, **made: Any) -> None:
    save_script(read_pair(write_folder(folder, TENSORRT, **made)), settings, folder)


def test_the_script_of_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It tells TensorRT 10, which alone may choose strong typing, what is the default of 11."""
    folder = tmp_path / "folder"
    scripted(folder, BuildSettings(batches=(1, 8)))
    ten = {"--stronglyTyped", "--useSpinWait", "--useCudaGraph"}
    for number, flags in ((101601, ten), (110400, {"--includeDataTransfers"})):
        calls = called_by_the_script(folder, monkeypatch, number)
        names = [words[0].removeprefix("--onnx=vit.") for words in calls]
        assert (
            names == ["dense.tensorrt-fp32.onnx"] * 2 + ["star.tensorrt-fp32.onnx"] * 2
        )
        for words, batch in zip(calls, (1, 8, 1, 8), strict=True):
            plan = (
                words[0].removeprefix("--onnx=").replace(".onnx", f".batch{batch}.plan")
            )
            assert {f"--saveEngine={plan}", "--timingCacheFile=trtexec.cache"} <= {
                *words
            }
            assert f"--loadInputs=images:inputs/images.batch{batch}.bin" in words
            for flag in ("--minShapes", "--optShapes", "--maxShapes", "--shapes"):
                assert f"{flag}=images:{batch}x3x4x4" in words
            assert words[-len(flags) :] and {*words[-len(flags) :]} == flags
            assert "--noTF32" in words
            assert not [word for word in words if "plugin" in word.lower()]


def test_no_graph_is_captured_where_sizes_follow_the_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "folder"
    shrinking = {"method": Method.A_STAR, "layout": Layout.SHRINKING}
    scripted(folder, BuildSettings(batches=(8,)), **shrinking)
    dense, pruned = called_by_the_script(folder, monkeypatch, 101601)
    assert "--useCudaGraph" in dense and "--useCudaGraph" not in pruned


def test_everything_that_can_be_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "folder"
    settings = replace(everything(tmp_path), hardware="same-compute-capability")
    monkeypatch.setattr(trtexec, "calls_plugin", lambda onnx: True)
    scripted(folder, replace(settings, batches=(1,)))
    for words in called_by_the_script(folder, monkeypatch, 110400):
        assert {
            "--hardwareCompatibilityLevel=sameComputeCapability",
            "--versionCompatible",
            f"--dynamicPlugins={tmp_path}/lib.so",
            "--builderOptimizationLevel=5",
        } <= {*words}
        assert "--noTF32" not in words


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
    later = manifest(version_compatible=True)
    assert load_command(engine, later, IMAGE, 1)[-1] == "--versionCompatible"
    beside = load_command(engine, manifest(plugin_sha256="ab"), IMAGE, 1)
    assert beside[-1] == "--dynamicPlugins=libcdf_retain_plugin.so"
    beside = load_command(
        engine, manifest(plugin_sha256="ab"), IMAGE, 1, tmp_path / "lib.so"
    )
    assert beside[-1] == f"--dynamicPlugins={tmp_path}/lib.so"
    with pytest.raises(UserError, match="build --batches 3"):
        load_command(engine, manifest(), IMAGE, 3)


def test_tensorrt_for_rtx_measures_what_tensorrt_does() -> None:
    """It leaves copies out and uses a graph unless told otherwise, and would compile anew in each call."""
    built = manifest(runtime=RTX.name, sm=(86,), built=replace(BUILT, tensorrt="1.7.1"))
    engine = Path("engines/m.engine")
    line = load_command(engine, built, IMAGE, 8)
    assert line[0] == "tensorrt_rtx"
    assert {"--includeDataTransfers", "--runtimeCacheFile=engines/m.cache"} <= {*line}
    assert not {"--useCudaGraph", "--useSpinWait"} & {*line}
    alone = load_command(engine, built, IMAGE, 8, transfers=False)
    assert not {"--includeDataTransfers", "--noDataTransfers"} & {*alone}


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


@pytest.mark.parametrize("content", [None, "", "[]", '[{"latencyMs": 1}]'])
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
    require_program(TRT)
    monkeypatch.setenv("PATH", "/nowhere")
    for tool in (TRT, RTX):
        with pytest.raises(
            UserError, match=rf"{tool.program} \| got no such.*--no-gpu-time"
        ):
            require_program(tool)


def test_load_of_runs_that_overlap() -> None:
    """100 runs of 4 images start a millisecond apart; the last one of the first stream ends after 102 ms."""
    runs = [
        {"startEnqMs": at, "endD2hMs": at + 3, "latencyMs": 1 + at / 100}
        for at in range(100)
    ]
    load = load_of(runs, 4, streams=3)
    assert load.streams == 3
    assert load.images_per_s == pytest.approx(4 * 100 / 0.102)
    assert load.percentiles_ms == pytest.approx(
        {50: 1.5, 90: 1.9, 95: 1.95, 99: 1.99}, abs=0.011
    )
