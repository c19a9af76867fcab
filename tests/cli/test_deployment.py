"""The deployment machine: `check`, `bench`, `inspect` and `eval`, with neither PyTorch nor onnx there."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands import Command, Workplace
from tests.shards import encoded, write_shard

QUICK = ("--batches", "1,2", "--rounds", "5", "--warmup", "0", "--profile-runs", "1")

# As on that machine: importing any of these fails.
MISSING = (
    "torch",
    "timm",
    "onnx",
    "onnxscript",
    "onnx_graphsurgeon",
    "safetensors",
    "scipy",
    "jinja2",
    "matplotlib",
)
BOX = (
    "import sys; sys.modules.update(dict.fromkeys({missing})); "
    "from exporter.cli.main import main; sys.exit(main(sys.argv[1:]))"
)


@pytest.fixture(scope="module", params=["star", "a-star"])
def folder(compiled: Callable[..., Path], request: pytest.FixtureRequest) -> Path:
    return compiled(*([] if request.param == "star" else ["--method", request.param]))


def on_the_machine(
    *arguments: object, missing: tuple[str, ...] = (*MISSING, "PIL")
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", BOX.format(missing=missing), *map(str, arguments)]
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
def test_the_folder_is_evaluated(folder: Path, workplace: Workplace, tmp_path: Path) -> None:
    """On image files, which only Pillow reads, and on tar files."""
    shard = write_shard(tmp_path / "a.tar", {"1.png": encoded(1), "1.cls": "1"})
    for images, count in ((workplace.images, 12), (shard, 1)):
        done = on_the_machine("eval", folder, "--images", images, "--json", missing=MISSING)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["models"]["pruned"]["images"] == count


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
