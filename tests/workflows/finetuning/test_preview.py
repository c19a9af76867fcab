"""A preview of fine-tuning says what it then does, refuses what it refuses, and does nothing itself."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from exporter.errors import CheckpointError, ImageError, OutputError, RecipeError, UserError
from exporter.models.registry import describe
from exporter.schedule.macs import dense_macs
from exporter.training.settings import FinetuneSettings
from exporter.vocabulary import Method
from exporter.workflows.finetuning.preview import preview_finetuning
from tests.commands import Workplace

SETTINGS = FinetuneSettings(epochs=3, batch_size=5)


def test_it_counts_images_and_multiply_adds(workplace: Workplace, tmp_path: Path) -> None:
    """Of 12 images, two batches of five are trained on in each epoch."""
    found = preview_finetuning(workplace.recipe(rho=0.6), SETTINGS, tmp_path / "w.safetensors")
    images = {each.step: each.images for each in found.steps}
    assert images == {"model": 0, "accuracy before": 12, "training": 30, "accuracy after": 12}
    dense = dense_macs(describe(workplace.request).spec).total
    (training,) = (each for each in found.steps if each.step == "training")
    assert found.gmacs_pruned is not None
    assert training.macs == pytest.approx(30 * (3e9 * found.gmacs_pruned + dense))
    assert (found.method, found.target, found.files) == ("tome", "", ("w.safetensors",))
    assert list(tmp_path.iterdir()) == []


def test_a_calibration_and_a_search_are_work_too(workplace: Workplace, tmp_path: Path) -> None:
    recipe, out = workplace.recipe(max_images=4), tmp_path / "w.safetensors"
    star = preview_finetuning(replace(recipe, method=Method.STAR, rho=0.6), SETTINGS, out)
    assert (star.steps[1].step, star.steps[1].images, star.unknown) == ("calibration", 4, "the calibration")
    fast = preview_finetuning(replace(recipe, speedup=1.5), SETTINGS, out)
    assert fast.steps[1].step == "search for rho"


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
        settings = replace(SETTINGS, batch_size=how.get("batch_size", 5))
        preview_finetuning(workplace.recipe(**{"rho": 0.6, **own}), settings, out, teacher=teacher)
