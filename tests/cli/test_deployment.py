"""The deployment machine: `check`, `bench` and `inspect` of a folder, with neither PyTorch nor onnx there."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from exporter.workflows.export_folder import save_checksums
from tests.commands import Command

QUICK = ("--batches", "1,2", "--rounds", "5", "--warmup", "0", "--profile-runs", "1")

# As on that machine: importing any of these fails.
MISSING = (
    "torch",
    "timm",
    "onnx",
    "onnxscript",
    "onnx_graphsurgeon",
    "safetensors",
    "PIL",
    "jinja2",
    "matplotlib",
)
BOX = (
    f"import sys; sys.modules.update(dict.fromkeys({MISSING})); "
    "from exporter.cli.main import main; sys.exit(main(sys.argv[1:]))"
)


@pytest.fixture(scope="module", params=["star", "a-star"])
def folder(compiled: Callable[..., Path], request: pytest.FixtureRequest) -> Path:
    return compiled(*([] if request.param == "star" else ["--method", request.param]))


def on_the_machine(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", BOX, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.ort
def test_the_folder_is_checked_measured_and_inspected(folder: Path) -> None:
    checked = on_the_machine("check", folder, "--json")
    assert checked.returncode == 0, checked.stderr
    outcome = json.loads(checked.stdout)
    assert outcome["passed"]
    assert outcome["pruned"]["layers"]
    assert {each["name"] for each in outcome["pruned"]["checks"]} >= {"kept_sets", "forced_logits"}
    for arguments in (("bench", folder, *QUICK, "--json"), ("inspect", folder)):
        done = on_the_machine(*arguments)
        assert done.returncode == 0, done.stderr
    pruned = json.loads((folder / "report.json").read_text())["files"]["pruned"]
    assert "ONNX model" in on_the_machine("inspect", folder / pruned).stdout


@pytest.mark.ort
def test_another_model_fails(star_export: Command, folder: Path, tmp_path: Path) -> None:
    """A reference of other logits, with its checksum mended: the models are not what PyTorch computed."""
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    with np.load(copy / "reference.npz") as arrays:
        changed = {name: arrays[name] + (name == "logits") for name in arrays.files}
    np.savez(copy / "reference.npz", **changed)
    done = star_export("check", copy)
    assert done.code == 2
    assert "SHA256SUMS" in done.error
    sums = (copy / "SHA256SUMS").read_text().splitlines()
    save_checksums(copy, [line.split("  ")[1] for line in sums])
    done = star_export("check", copy, "--json")
    assert done.code == 1
    assert done.json["dense"]["passed"]
    assert not done.json["pruned"]["passed"]


@pytest.mark.ort
@pytest.mark.parametrize("runtime", ["onnxruntime-cuda", "onnxruntime-tensorrt"])
def test_a_provider_that_is_not_here(star_export: Command, folder: Path, runtime: str) -> None:
    done = star_export("check", folder, "--runtime", runtime)
    assert done.code == 2
    assert "pip install 'star-export[onnxruntime-gpu]'" in done.error


@pytest.mark.ort
@pytest.mark.parametrize("target", ["openvino-int8", "onnxruntime-fp16"])
def test_a_folder_runs_on_what_it_was_made_for(
    star_export: Command, compiled: Callable[..., Path], target: str
) -> None:
    """With the tolerance of its precision: fp32's would fail both."""
    folder = compiled("--target", target)
    done = star_export("check", folder, "--json")
    assert done.code == 0, done.out
    assert done.json["runtime"] == target.rpartition("-")[0]
    assert done.json["dense"]["logit_diff_needed_per_std"] > 1e-4
    measured = star_export("bench", folder, *QUICK, "--json")
    assert measured.code == 0, measured.err
    assert measured.json["runtime"] == done.json["runtime"]


def test_a_folder_or_a_file(star_export: Command, tmp_path: Path) -> None:
    for flags in ((), (tmp_path, "--onnx", tmp_path / "m.onnx")):
        done = star_export("check", *flags)
        assert done.code == 2
        assert "an export folder, or --onnx FILE" in done.error
