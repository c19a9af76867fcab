"""A preview of a search says what is certain of it, refuses what it refuses, and measures nothing."""

from dataclasses import replace
from pathlib import Path

import pytest

from exporter.errors import RecipeError
from exporter.workflows.tuning import preview
from exporter.workflows.tuning.axes import candidates
from exporter.workflows.tuning.preview import preview_search
from tests.commands import Workplace
from tests.workflows.tuning.small import TARGETS, recipe_for, settings


@pytest.fixture(autouse=True)
def two_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preview, "targets_here", lambda _: TARGETS)


def test_it_has_the_certain_steps_and_ends_at_the_limit(workplace: Workplace, tmp_path: Path) -> None:
    found = preview_search(recipe_for(workplace), settings(minutes=600.0), tmp_path)
    steps = {each.step: each for each in found.steps}
    assert steps["calibration"].images == 4
    assert steps["unpruned model, first images"].lowered == 2
    assert f"up to {len(candidates())} candidates, within the time limit" in steps
    assert steps["the choice, on the final half"].images == 6
    assert found.minutes[0] < found.minutes[1] == 600
    assert (found.gmacs_pruned, found.unknown) == (None, "the search")
    assert {"tune.toml", "front.json", "model.calibration.safetensors", "compiled/"} <= set(found.files)
    assert list(tmp_path.iterdir()) == []


def test_without_images_to_calibrate_on_fewer_candidates_are_left(
    workplace: Workplace, tmp_path: Path
) -> None:
    recipe = replace(recipe_for(workplace), images=None, mac_reduction=0.25)
    found = preview_search(recipe, settings(), tmp_path)
    one_share = len([each for each in candidates() if each.mac_reduction == 0.1])
    (row,) = (each.step for each in found.steps if each.step.startswith("up to "))
    assert 0 < int(row.split()[2]) < one_share
    assert "calibration" not in {each.step for each in found.steps}
    assert found.gmacs_pruned == pytest.approx(0.75 * found.gmacs_dense)


def test_what_tune_refuses_is_refused(workplace: Workplace, tmp_path: Path) -> None:
    recipe = recipe_for(workplace)
    for wrong, message in (({"rounds": 0}, "--rounds"), ({"eval_images": None}, "--eval-images")):
        with pytest.raises(RecipeError, match=message):
            preview_search(replace(recipe, **wrong), settings(), tmp_path)
