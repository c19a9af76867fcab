"""What the records of a recipe say together: what is needed, and what is missing, before any work."""

from pathlib import Path

import pytest

from exporter.errors import RecipeError
from exporter.workflows.recipe import Recipe
from exporter.workflows.opened import open_recipe


def test_no_amount_is_said_by_the_verb() -> None:
    with pytest.raises(
        RecipeError, match=r"compile \| got no amount to prune \| need one of rho, mac_reduction"
    ):
        open_recipe(Recipe()).needed_amount("compile")


def test_rates_that_follow_from_acs_need_a_calibration() -> None:
    with pytest.raises(RecipeError, match="--calibration"):
        open_recipe(Recipe.of(rho=0.5, scorer="intra")).check_calibrated()
    open_recipe(Recipe.of(rates={2: 0.5}, scorer="intra")).check_calibrated()
    open_recipe(Recipe.of(rho=0.5)).check_calibrated()


def test_int8_needs_images_for_its_ranges() -> None:
    with pytest.raises(RecipeError, match="a folder of images, for the activation ranges of openvino-int8"):
        open_recipe(Recipe.of(target="openvino-int8")).check_ranges()
    open_recipe(Recipe.of(target="openvino-int8", images=Path("photos"))).check_ranges()
    open_recipe(Recipe.of(target="onnxruntime-fp32")).check_ranges()


def test_a_model_that_no_training_pruned_is_not_compared_on_noise() -> None:
    assert not open_recipe(Recipe.of(rho=0.5)).on_noise
