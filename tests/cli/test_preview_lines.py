"""`compile --dry-run`: what would be done, and nothing is."""

from pathlib import Path

from tests.commands import Command, Workplace


def test_a_dry_run(star_export: Command, workplace: Workplace, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = star_export(
        *(
            "compile",
            *workplace.model,
            "--images",
            workplace.images,
            "--rho",
            "0.5",
            "--out",
            out,
            "--dry-run",
        )
    )
    assert (done.code, done.err) == (0, "")
    assert "tome, onnxruntime-fp32: nothing is run" in done.out
    assert "GMACs per image: 0.002 dense, 0.001 pruned\n" in done.out
    assert "report.html" in done.out
    assert "A guess from multiply-adds" in done.out
    assert not out.exists()


def test_a_dry_run_of_a_method_that_calibrates(
    star_export: Command, workplace: Workplace, tmp_path: Path
) -> None:
    flags = (
        *workplace.model,
        "--images",
        workplace.images,
        "--method",
        "star",
        "--rho",
        "0.5",
        "--out",
        tmp_path,
    )
    done = star_export("compile", *flags, "--dry-run")
    assert "unknown pruned (the schedule follows from the calibration)" in done.out
    told = star_export("compile", *flags, "--dry-run", "--json").json
    assert told["gmacs_pruned"] is None
    assert [step["step"] for step in told["steps"]][:2] == ["model", "calibration"]


def test_a_search_has_no_dry_run(star_export: Command, workplace: Workplace, tmp_path: Path) -> None:
    done = star_export("compile", *workplace.model, "--max-drop", "1", "--dry-run", "--out", tmp_path)
    assert done.code == 2
    assert "--dry-run | got --max-drop" in done.error
