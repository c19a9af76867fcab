"""A finished run is read again for the same recipe and settings alone."""

from pathlib import Path
from typing import Any

import pytest

from exporter.errors import ScheduleError
from exporter.training.settings import FinetuneSettings
from exporter.workflows.recipe import Recipe
from tests.benchmarks.scripts import script

finetuning = script("finetuning.py")


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Recipe, FinetuneSettings]]:
    seen = []

    def train(recipe: Recipe, settings: FinetuneSettings, out: Path, **_: object) -> Any:
        seen.append((recipe, settings))
        return {
            "gmacs_pruned": 1.0,
            "top1_before": 0.5,
            "top1_after": 0.6,
            "interval_before": [0.45, 0.55],
            "interval_after": [0.55, 0.65],
            "loss_after": {"loss_points": 2.0, "loss_interval_points": [1.0, 3.0]},
            "recovery": {"share": 0.5},
        }

    monkeypatch.setattr(finetuning, "finetune_model", train)
    return seen


def words(out: Path, *more: str) -> list[str]:
    return ["--model", "digits_vit", "--rhos", "0.5", "--ways", "fused, drop", "dense", "--seeds", "2", *more,
            "--out", str(out)]  # fmt: skip


def test_each_way_and_seed_is_run_once(
    runs: list[tuple[Recipe, FinetuneSettings]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert finetuning.main(words(tmp_path)) == 0
    shown = capsys.readouterr().out
    cells = (
        "1.000",
        "50.00% (45.0 to 55.0)",
        "60.00% (55.0 to 65.0)",
        "60.00, 60.00",
        "+2.00 (1.0 to 3.0)",
        "50%",
    )
    assert f"| fused, drop | {' | '.join(cells)} |" in shown
    asked = [(recipe.prune.rho, recipe.prune.reduce, settings.seed) for recipe, settings in runs]
    assert asked == [(0.5, "drop", 0), (1.0, None, 0), (0.5, "drop", 1), (1.0, None, 1)]
    assert {settings.augment for _, settings in runs} == {"affine"}
    assert finetuning.main(words(tmp_path)) == 0
    assert (len(runs), capsys.readouterr().out) == (4, shown)


def test_manual_rates_keep_their_proportions_at_equal_multiply_adds_alone(
    runs: list[tuple[Recipe, FinetuneSettings]], tmp_path: Path
) -> None:
    ways = ["--ways", "fused, drop", "fused, drop, manual rates", "--mac-reductions", "0.4", "--seeds", "1"]
    assert finetuning.main(words(tmp_path, *ways)) == 0
    asked = {
        (prune.rho, prune.mac_reduction, tuple(prune.rates)) for prune in (recipe.prune for recipe, _ in runs)
    }
    assert asked == {(0.5, None, ()), (None, 0.4, ()), (None, 0.4, (4, 7, 10))}


def test_a_share_that_is_out_of_reach_leaves_its_cells_empty(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def train(*_: object, **__: object) -> None:
        raise ScheduleError("target", "much", "less")

    monkeypatch.setattr(finetuning, "finetune_model", train)
    assert finetuning.main(words(tmp_path)) == 0
    assert "| fused, drop | out of reach |  |  |  |  |  |" in capsys.readouterr().out


@pytest.mark.parametrize("more", [("--lr", "0.01"), ("--epochs", "2"), ("--batch-size", "8")])
def test_a_run_of_other_settings_is_refused(
    more: tuple[str, str],
    runs: list[tuple[Recipe, FinetuneSettings]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert finetuning.main(words(tmp_path)) == 0
    assert finetuning.main(words(tmp_path, *more)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and "another recipe or other settings" in line
    assert len(runs) == 4
