"""`--dry-run`: the settings, the schedule and its multiply-adds; nothing is run, and nothing guessed."""

from pathlib import Path

from tests.commands import Command, Workplace, succeeded


def dry(
    star_export: Command, workplace: Workplace, verb: str, out: Path, *flags: object
) -> list[str]:
    """The lines of a dry run, which leaves nothing behind."""
    images = ("--images", workplace.images)
    done = succeeded(
        star_export(verb, *workplace.model, *images, *flags, "--out", out, "--dry-run")
    )
    assert all(line.startswith("WARNING: ") for line in done.err.splitlines())
    assert not out.exists()
    return done.out.splitlines()


def test_a_dry_run(star_export: Command, workplace: Workplace, tmp_path: Path) -> None:
    lines = dry(star_export, workplace, "compile", tmp_path / "out", "--rho", "0.6")
    assert lines[0] == "vit_tiny_patch16_224: checked, nothing is run"
    assert {"prune.rho = 0.6", f"images.images = {workplace.images}"} <= set(lines)
    assert "GMACs per image: 0.002 of your model, 0.001 pruned" in lines
    (title,) = (line for line in lines if line.startswith("schedule"))
    assert title == "schedule: matching, merge-weighted, rho 0.6"
    assert sum(line.startswith("│") for line in lines) == 4  # one for each layer


def test_a_schedule_that_is_not_known_yet(
    star_export: Command, workplace: Workplace, tmp_path: Path
) -> None:
    flags = ("--method", "star", "--rho", "0.5")
    lines = dry(star_export, workplace, "compile", tmp_path / "out", *flags)
    assert lines[-1].endswith(
        "unknown pruned (the schedule follows from the calibration)"
    )
    images = ("--images", workplace.images, "--out", tmp_path, "--dry-run", "--json")
    told = star_export("compile", *workplace.model, *flags, *images).json
    assert told["unknown"] == "the calibration"
    assert told["settings"]["prune.method"] == "star"


def test_fine_tuning_has_its_own_settings(
    star_export: Command, workplace: Workplace, tmp_path: Path
) -> None:
    flags = (
        "--eval-images",
        workplace.images,
        "--rho",
        "0.6",
        "--preset",
        "short",
        "--epochs",
        "3",
    )
    lines = dry(star_export, workplace, "finetune", tmp_path / "w.safetensors", *flags)
    assert {"epochs = 3", "augment = crop", "prune.rho = 0.6"} <= set(lines)


def test_a_search_has_no_schedule_yet(
    star_export: Command, workplace: Workplace, tmp_path: Path
) -> None:
    flags = ("--eval-images", workplace.images, "--max-drop", "1")
    done = star_export(
        "tune",
        *workplace.given,
        *flags,
        "--out",
        tmp_path / "out",
        "--dry-run",
    )
    lines = done.out.splitlines()
    assert "max_drop = 1.0" in lines
    assert "the search, which screens 3 ways on 6 images each" in lines[-1]
    assert (
        "6 images are in the final half: to show a loss within 1 points takes 381"
        in done.err
    )
    assert not (tmp_path / "out").exists()
