"""The jobs of a search: other checkpoints are what they say of themselves, and nothing pins them."""

from pathlib import Path

import pytest

from exporter.errors import RecipeError
from exporter.workflows.tuning.axes import OWN
from exporter.workflows.tuning.jobs import jobs_of
from tests.commands import Workplace


def test_other_checkpoints_share_the_images_and_no_pin(workplace: Workplace) -> None:
    recipe = workplace.recipe(method="star", rho=0.5)
    jobs = jobs_of(recipe, [workplace.checkpoint])
    own, other = jobs[OWN], jobs[workplace.checkpoint.stem]
    assert (own.model.name, own.scoring.method) == (recipe.model, "star")
    assert (other.model.checkpoint, other.model.name) == (workplace.checkpoint, "")
    assert (other.scoring.method, other.amount, other.images) == (None, None, own.images)


def test_two_checkpoints_of_one_name_are_refused(workplace: Workplace) -> None:
    path = workplace.checkpoint
    with pytest.raises(RecipeError, match="files of different names"):
        jobs_of(workplace.recipe(), [path, Path(f"{path.parent}/./{path.name}")])
