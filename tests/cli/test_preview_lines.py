"""`--dry-run`: what would be done, and nothing is."""

from pathlib import Path

import pytest

from tests.commands import Command, Workplace


def dry(star_export: Command, workplace: Workplace, verb: str, out: Path, *flags: object) -> list[str]:
    """The lines of a dry run, which leaves nothing behind."""
    images = ("--images", workplace.images)
    done = star_export(verb, *workplace.model, *images, *flags, "--out", out, "--dry-run")
    assert (done.code, done.err) == (0, "")
    assert not out.exists()
    return done.out.splitlines()


def test_a_dry_run(star_export: Command, workplace: Workplace, tmp_path: Path) -> None:
    lines = dry(star_export, workplace, "compile", tmp_path / "out", "--rho", "0.5")
    assert lines[0].endswith("tome, onnxruntime-fp32: nothing is run")
    assert "GMACs per image: 0.002 dense, 0.001 pruned" in lines
    (files,) = (line for line in lines if line.startswith("files: "))
    assert "report.html" in files
    assert "A guess from multiply-adds" in lines[-1]


def test_a_dry_run_of_a_method_that_calibrates(
    star_export: Command, workplace: Workplace, tmp_path: Path
) -> None:
    flags = ("--method", "star", "--rho", "0.5")
    lines = dry(star_export, workplace, "compile", tmp_path / "out", *flags)
    assert any("unknown pruned (the schedule follows from the calibration)" in line for line in lines)
    images = ("--images", workplace.images, "--out", tmp_path, "--dry-run", "--json")
    told = star_export("compile", *workplace.model, *flags, *images).json
    assert told["gmacs_pruned"] is None
    assert [step["step"] for step in told["steps"]][:2] == ["model", "calibration"]


def test_a_calibration_prunes_nothing(star_export: Command, workplace: Workplace, tmp_path: Path) -> None:
    lines = dry(star_export, workplace, "calibrate", tmp_path / "c.safetensors", "--max-images", "5")
    assert lines[0] == "vit_tiny_patch16_224: nothing is run"
    assert "GMACs per image: 0.002 dense" in lines
    assert "files: c.safetensors" in lines


def test_fine_tuning_has_its_epochs(star_export: Command, workplace: Workplace, tmp_path: Path) -> None:
    flags = ("--eval-images", workplace.images, "--rho", "0.6", "--preset", "short", "--epochs", "3")
    lines = dry(star_export, workplace, "finetune", tmp_path / "w.safetensors", *flags)
    assert lines[0] == "vit_tiny_patch16_224, tome: nothing is run"
    (training,) = (line for line in lines if "training" in line)
    assert " 36 " in training


@pytest.mark.parametrize("verb", ["tune", "compile"])
def test_a_search_ends_at_its_limit(
    star_export: Command, workplace: Workplace, tmp_path: Path, verb: str
) -> None:
    """`compile --max-drop` searches as `tune` does."""
    flags = ("--eval-images", workplace.images, "--max-images", "4", "--max-drop", "1")
    lines = dry(star_export, workplace, verb, tmp_path / "out", *flags)
    assert any("candidates, within the time limit" in line for line in lines)
    assert any("unknown pruned (the schedule follows from the search)" in line for line in lines)
    assert " to 30 min. A guess" in lines[-1]
