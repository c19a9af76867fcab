"""The command line, and the times it exports."""

import json
import os
from pathlib import Path

import pytest

from exporter.engines.settings import BuildSettings
from exporter.engines.trtexec import command, read_times, run_trtexec
from exporter.errors import ArtefactError, RecipeError, UserError

IMAGE = (3, 224, 224)


def run(latency: float, compute: float) -> dict[str, float]:
    """One record of --exportTimes."""
    ends = {f"{end}{part}Ms": 0.0 for end in ("start", "end") for part in ("In", "Compute", "Out")}
    return {**ends, "inMs": 0.1, "computeMs": compute, "outMs": 0.1, "latencyMs": latency}


def test_the_line_for_one_batch(tmp_path: Path) -> None:
    words = command(tmp_path / "m.onnx", IMAGE, 8, BuildSettings(), tensorrt="10.16.1")
    assert words[0] == "trtexec"
    assert f"--loadInputs=images:{tmp_path}/inputs/images.batch8.bin" in words
    for flag in ("--minShapes", "--optShapes", "--maxShapes", "--shapes"):
        assert f"{flag}=images:8x3x224x224" in words
    assert {"--useCudaGraph", "--stronglyTyped", "--noTF32"} <= set(words)
    assert not [word for word in words if "plugin" in word.lower()]


@pytest.mark.parametrize("version", ["8.6.0", "11.4.0.106"])
def test_strong_typing_is_asked_for_where_it_is_a_choice(version: str) -> None:
    assert "--stronglyTyped" not in command(Path("m.onnx"), IMAGE, 1, BuildSettings(), tensorrt=version)


def test_everything_that_can_be_asked_for(tmp_path: Path) -> None:
    settings = BuildSettings(
        workspace_mib=512,
        hardware="same-compute-capability",
        version_compatible=True,
        tf32=True,
        plugin=tmp_path / "lib.so",
    )
    words = command(Path("m.onnx"), IMAGE, 1, settings, engine="m.engine")
    assert {
        "--memPoolSize=workspace:512",
        "--hardwareCompatibilityLevel=sameComputeCapability",
        "--versionCompatible",
        f"--dynamicPlugins={tmp_path}/lib.so",
        f"--setPluginsToSerialize={tmp_path}/lib.so",
        "--saveEngine=m.engine",
    } <= set(words)
    assert "--noTF32" not in words


def test_times_by_the_median(tmp_path: Path) -> None:
    path = tmp_path / "times.json"
    path.write_text(json.dumps([run(2.0, 1.0), run(4.0, 1.5), run(9.0, 8.0)]))
    times = read_times(path, batch=8)
    assert (times.runs, times.latency_median_ms, times.compute_median_ms) == (3, 4.0, 1.5)
    assert (times.images_per_s, times.latency_p99_ms, times.compute_p99_ms) == (2000.0, 9.0, 8.0)


@pytest.mark.parametrize("content", [None, "", "{}", "[]", '[{"latencyMs": 1}]', '["x"]'])
def test_times_that_are_none(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "times.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ArtefactError, match="trtexec exported"):
        read_times(path, batch=1)


def stand_in(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of that name on PATH."""
    program = folder / "trtexec"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = json.dumps([run(2.0, 1.0)])
    script = f"for word; do case $word in --exportTimes=*) echo '{times}' > ${{word#*=}};; esac; done"
    stand_in(tmp_path, script, monkeypatch)
    assert run_trtexec(["trtexec", "--onnx=m.onnx"], batch=4).images_per_s == 2000.0


def test_a_run_that_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, "echo '[E] Model missing or invalid'; exit 1", monkeypatch)
    with pytest.raises(UserError, match="Model missing or invalid"):
        run_trtexec(["trtexec", "--onnx=m.onnx"], batch=1)


def test_without_trtexec(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UserError, match="no such program"):
        run_trtexec(["trtexec"], batch=1)


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
