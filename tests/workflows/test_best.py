"""What the choice of a target refuses before anything is loaded."""

import pytest

from exporter.errors import RecipeError
from exporter.vocabulary import Method
from exporter.workflows.best import choose
from exporter.workflows.recipes.recipe import Recipe


@pytest.mark.parametrize(
    ("recipe", "max_drop", "message"),
    [
        (Recipe(method=Method.A_STAR, rho=0.5), None, "best | got a-star | need star"),
        (Recipe(rho=0.5), -1.0, "max_drop | got -1.0"),
        (Recipe(rho=0.5), float("nan"), "max_drop | got nan"),
        (Recipe(rho=0.5, rounds=0), None, "--rounds"),
        (Recipe(), None, "rho"),
        (Recipe(method=Method.STAR, rho=0.5), None, "--calibration"),
        # ToMe wants no calibration, but a model.
        (Recipe(method=Method.TOME, rho=0.5), None, "--model"),
    ],
)
def test_what_is_refused_before_anything_is_loaded(
    recipe: Recipe, max_drop: float | None, message: str
) -> None:
    with pytest.raises(RecipeError) as error:
        choose(recipe, max_drop)
    assert message in str(error.value)
