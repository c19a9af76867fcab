"""The deployment machine: `check`, `bench`, `inspect` and `eval`, without PyTorch there."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands import Command, Workplace, report_of, succeeded
from tests.deployment import on_the_machine
from tests.exhaustive import also
from tests.shards import encoded, write_shard

QUICK = ("--batches", "1,2", "--rounds", "5", "--warmup", "0")


@pytest.fixture(scope="module", params=["star", "a-star"])
def folder(compiled: Callable[..., Path], request: pytest.FixtureRequest) -> Path:
    return compiled(*([] if request.param == "star" else ["--method", request.param]))


@pytest.mark.ort
def test_the_folder_is_checked_measured_inspected_and_served(
    folder: Path, tmp_path: Path
) -> None:
    checked = on_the_machine("check", folder, "--json", without=("PIL",))
    assert checked.returncode == 0, checked.stderr
    outcome = json.loads(checked.stdout)
    assert outcome["passed"]
    assert outcome["parity"]["pruned"]["layers"]
    assert {check["name"] for check in outcome["parity"]["pruned"]["checks"]} >= {
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
    pruned = report_of(folder)["files"]["pruned"]
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
    measured = succeeded(star_export("bench", folder, *QUICK, "--json"))
    assert measured.json["runtime"] == done.json["runtime"]
