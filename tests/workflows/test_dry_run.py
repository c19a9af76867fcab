"""A dry run has the schedule of the run wherever that is known before work, and refuses what the run refuses."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from exporter.errors import CheckpointError, ImageError, OutputError, RecipeError, UserError
from exporter.formats.canonical_json import load_json
from exporter.models.registry import load
from exporter.records import Schedule
from exporter.schedule.macs import dense_macs, schedule_macs
from exporter.training.settings import FinetuneSettings
from exporter.workflows.compiling.compile import dry_compile
from exporter.workflows.opened import DryRun, dry_run
from exporter.workflows.finetune import dry_finetune
from exporter.workflows.opened import open_recipe
from tests.commands import Workplace

SETTINGS = FinetuneSettings(epochs=3, batch_size=5)


def planned(workplace: Workplace, **how: Any) -> DryRun:
    recipe = workplace.recipe(**how)
    return dry_run(load(workplace.request), open_recipe(recipe), recipe)


def test_its_schedule_and_multiply_adds_are_those_of_the_compilation(
    workplace: Workplace, calibration: Path, compiled: Callable[..., Path]
) -> None:
    """The folder of the fixture, by its settings."""
    recipe = workplace.recipe(calibration=calibration, rho=0.5, scorer="intra", rounds=0)
    found, folder = dry_compile(recipe, compiled()), compiled()
    assert found.schedule == load_json(Schedule, folder / "schedule.json")
    report = (folder / "report.json").read_text()
    assert f'"pruned": {found.gmacs_pruned!r}' in report
    assert f'"dense": {found.gmacs_dense!r}' in report
    assert found.unknown == ""
    assert (found.settings["rho"], found.settings["rounds"]) == (0.5, 0)
    assert "batch" not in found.settings


def test_nothing_is_written(workplace: Workplace, tmp_path: Path) -> None:
    found = dry_compile(workplace.recipe(rho=0.5), tmp_path / "out")
    assert found.schedule is not None and found.schedule.method == "tome"
    dry_finetune(workplace.recipe(rho=0.6), SETTINGS, tmp_path / "w.safetensors")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("how", "unknown"),
    [
        ({"method": "star", "rho": 0.5}, "the calibration"),
        ({"method": "a-star", "mac_reduction": 0.3}, "the images"),
    ],
)
def test_what_a_schedule_follows_from_is_named(
    how: dict[str, Any], unknown: str, workplace: Workplace
) -> None:
    found, spec = planned(workplace, **how), load(workplace.request).spec
    assert (found.schedule, found.unknown) == (None, unknown)
    share = how.get("mac_reduction")
    expected = None if share is None else pytest.approx((1 - share) * dense_macs(spec).gmacs)
    assert found.gmacs_pruned == expected


def test_a_schedule_that_needs_nothing_is_known(workplace: Workplace, calibration: Path) -> None:
    spec = load(workplace.request).spec
    for how in ({}, {"method": "star", "calibration": calibration}):
        found = planned(workplace, rho=0.5, **how)
        assert found.schedule is not None and found.schedule.rho == 0.5
        assert found.gmacs_pruned == schedule_macs(spec, found.schedule).gmacs


def test_what_compile_refuses_is_refused(workplace: Workplace, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="amount"):
        dry_compile(workplace.recipe(), tmp_path)
    with pytest.raises(ImageError, match="no such folder"):
        dry_compile(workplace.recipe(rho=0.5, eval_images=tmp_path / "none"), tmp_path)


@pytest.mark.parametrize(
    ("how", "error", "message"),
    [
        ({"rho": None}, RecipeError, "no amount to prune"),
        ({"eval_images": None}, RecipeError, "--eval-images"),
        ({"images": "nowhere"}, ImageError, "no such folder"),
        ({"out": "w.pth"}, OutputError, r"ends in \.safetensors"),
        ({"batch_size": 0}, RecipeError, "batch_size"),
        ({"teacher": "nowhere.pth"}, CheckpointError, r"nowhere\.pth"),
    ],
)
def test_what_finetune_refuses_is_refused(
    how: dict[str, Any], error: type[UserError], message: str, workplace: Workplace, tmp_path: Path
) -> None:
    own = {name: value for name, value in how.items() if name in ("rho", "eval_images", "images")}
    out, teacher = tmp_path / how.get("out", "w.safetensors"), how.get("teacher")
    with pytest.raises(error, match=message):
        training = replace(SETTINGS, batch_size=how.get("batch_size", 5))
        dry_finetune(workplace.recipe(**{"rho": 0.6, **own}), training, out, teacher=teacher)
