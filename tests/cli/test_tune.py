"""`star-export tune`: the result as JSON and as a table, and its exit codes."""

from pathlib import Path

import pytest

from exporter.targets import ONNXRUNTIME
from exporter.workflows.tuning import study, tune
from tests.commands import Command, Outcome, Workplace
from tests.workflows.tuning.small import few_candidates

pytestmark = pytest.mark.ort
QUICK = ("--minutes", "5", "--rounds", "5", "--batch", "2", "--finalists", "1", "--runtime", "onnxruntime")


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "candidates", few_candidates)
    monkeypatch.setattr(tune, "compile_model", lambda *_, **__: None)
    monkeypatch.setattr(tune, "_targets", lambda *_: (ONNXRUNTIME,))


def run(star_export: Command, workplace: Workplace, out: Path, *flags: object) -> Outcome:
    measured = ("--eval-images", workplace.images, "--threads", "1", "--out", out)
    return star_export("tune", *workplace.model, *QUICK, *measured, *flags)


def test_what_others_script_against(star_export: Command, workplace: Workplace, tmp_path: Path) -> None:
    done = run(star_export, workplace, tmp_path, "--max-ms", "100000", "--json")
    assert done.code == 0, done.err
    for name in ("recipe", "status", "loss_points", "bound_points", "images_per_s", "gain", "tried"):
        assert done.json[name] is not None
    assert done.json["recipe"] == str(tmp_path / "tune.toml")
    again = run(star_export, workplace, tmp_path, "--max-ms", "100000")
    assert again.code == 0
    assert done.json["explanation"] in again.out
    assert "unpruned" in again.out and "chosen" in again.out


def test_nothing_within_the_limit_is_1(star_export: Command, workplace: Workplace, tmp_path: Path) -> None:
    done = run(star_export, workplace, tmp_path, "--max-ms", "0.000001")
    assert done.code == 1
    assert "Nothing is within 1e-06 ms" in done.out


@pytest.mark.parametrize(
    "flags", [("--max-drop", "-1"), ("--max-drop", "101"), (), ("--max-drop", "1", "--max-ms", "2")]
)
def test_limits_that_are_none_are_one_line(
    star_export: Command, workplace: Workplace, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    done = run(star_export, workplace, tmp_path / "out", *flags)
    assert done.code == 2
    assert "max" in done.error
    assert not (tmp_path / "out").exists()
