"""The deployment machine: `check`, `bench`, `inspect` and `eval`, without PyTorch there."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands import Command, Workplace
from tests.exhaustive import also
from tests.shards import encoded, write_shard

QUICK = ("--batches", "1,2", "--rounds", "5", "--warmup", "0")

# All that is installed there, by the names of imports: what the wheel requires, ONNX Runtime, and what these need.
INSTALLED = ("numpy", "PIL", "rich", "msgspec", "onnx", "onnxruntime")
THEIRS = (
    "pygments",
    "markdown_it",
    "mdurl",
    "google",
    "flatbuffers",
    "packaging",
    "ml_dtypes",
    "typing_extensions",
)

# As on that machine: importing anything else fails.
BOX = """
import sys

class Bare:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in {allowed} and top not in sys.stdlib_module_names:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Bare())
from exporter.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture(scope="module", params=["star", "a-star"])
def folder(compiled: Callable[..., Path], request: pytest.FixtureRequest) -> Path:
    return compiled(*([] if request.param == "star" else ["--method", request.param]))


def on_the_machine(
    *arguments: object, without: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    allowed = {"exporter", *INSTALLED, *THEIRS} - {*without}
    command = [sys.executable, "-c", BOX.format(allowed=allowed), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.ort
def test_the_folder_is_checked_measured_inspected_and_served(
    folder: Path, tmp_path: Path
) -> None:
    checked = on_the_machine("check", folder, "--json", without=("PIL",))
    assert checked.returncode == 0, checked.stderr
    outcome = json.loads(checked.stdout)
    assert outcome["passed"]
    assert outcome["parity"]["pruned"]["layers"]
    assert {each["name"] for each in outcome["parity"]["pruned"]["checks"]} >= {
        "kept_sets",
        "forced_logits",
    }
    for arguments in (
        ("bench", folder, *QUICK, "--json"),
        ("inspect", folder),
        ("serve-config", folder, "--out", tmp_path / "triton"),
        ("build", "--plugin-source", tmp_path / "plugin"),
    ):
        done = on_the_machine(*arguments, without=("PIL",))
        assert done.returncode == 0, done.stderr
    pruned = json.loads((folder / "report.json").read_text())["files"]["pruned"]
    assert "ONNX model" in on_the_machine("inspect", folder / pruned).stdout


@pytest.mark.ort
def test_the_folder_is_evaluated(
    folder: Path, workplace: Workplace, tmp_path: Path
) -> None:
    """On image files, which only Pillow reads, and on tar files."""
    shard = write_shard(tmp_path / "a.tar", {"1.png": encoded(1), "1.cls": "1"})
    for images, count in ((workplace.images, 12), (shard, 1)):
        done = on_the_machine("eval", folder, "--images", images, "--json")
        assert done.returncode == 0, done.stderr
        assert (
            json.loads(done.stdout)["models"]["pruned"]["accuracy"]["images"] == count
        )


@pytest.mark.ort
@pytest.mark.parametrize("target", [also("openvino-int8"), "onnxruntime-fp16"])
def test_a_folder_runs_on_what_it_was_made_for(
    star_export: Command, compiled: Callable[..., Path], target: str
) -> None:
    """With the tolerance of its precision: fp32's would fail both."""
    folder = compiled("--target", target)
    done = star_export("check", folder, "--json")
    assert done.code == 0, done.out
    assert done.json["runtime"] == target.rpartition("-")[0]
    assert done.json["parity"]["dense"]["outputs"][0]["diff_needed_per_std"] > 1e-4
    measured = star_export("bench", folder, *QUICK, "--json")
    assert measured.code == 0, measured.err
    assert measured.json["runtime"] == done.json["runtime"]
