"""ToMe by the command line: compiled without a calibration, checked from the folder alone."""

import json
from pathlib import Path

import pytest

from tests.commands import Command, Workplace


@pytest.fixture
def folder(star_export: Command, workplace: Workplace, tmp_path: Path) -> Path:
    flags = ("--images", workplace.images, "--method", "tome", "--rho", "0.5", "--rounds", "0")
    done = star_export("compile", *workplace.model, *flags, "--out", tmp_path / "out")
    assert done.code == 0, done.err
    assert "tome, merge-weighted, rho 0.5" in done.out
    assert "calibration" not in done.err
    return tmp_path / "out"


@pytest.mark.ort
def test_a_folder_without_a_calibration_says_what_was_done_and_passes(
    star_export: Command, folder: Path
) -> None:
    assert not (folder / "calibration.safetensors").exists()
    report = json.loads((folder / "report.json").read_text())
    schedule = report["schedule"]
    assert (schedule["method"], schedule["reduce"]) == ("tome", "merge-weighted")
    assert (schedule["keep"], report["calibration"]) == ([13, 10, 7, 7], None)
    assert all(each["passed"] for each in report["parity"].values())
    assert "the other patches: merge-weighted" in (folder / "report.html").read_text()
    checked = star_export("check", folder, "--json")
    assert checked.code == 0
    checks = {each["name"]: each["passed"] for each in checked.json["parity"]["pruned"]["checks"]}
    assert checks["merges"] and checks["kept_sets"] and checks["kept_indices"]
