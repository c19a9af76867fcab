"""What the records of a recipe say together: what is needed, and what is missing, before any work."""

from pathlib import Path

import pytest

from exporter.errors import RecipeError
from exporter.workflows.recipes.recipe import Recipe
from exporter.workflows.recipes.resolve import resolve


def test_no_amount_is_said_by_the_verb() -> None:
    with pytest.raises(
        RecipeError, match=r"compile \| got no amount to prune \| need one of rho, mac_reduction"
    ):
        resolve(Recipe()).needed_amount("compile")


def test_rates_that_follow_from_acs_need_a_calibration() -> None:
    with pytest.raises(RecipeError, match="--calibration"):
        resolve(Recipe(rho=0.5, scorer="intra")).check_calibrated()
    resolve(Recipe(rates={2: 0.5}, scorer="intra")).check_calibrated()
    resolve(Recipe(rho=0.5)).check_calibrated()


def test_int8_needs_images_for_its_ranges() -> None:
    with pytest.raises(RecipeError, match="a folder of images, for the activation ranges of openvino-int8"):
        resolve(Recipe(target="openvino-int8")).check_ranges()
    resolve(Recipe(target="openvino-int8", images=Path("photos"))).check_ranges()
    resolve(Recipe(target="onnxruntime-fp32")).check_ranges()


def test_a_model_that_no_training_pruned_is_not_compared_on_noise() -> None:
    assert not resolve(Recipe(rho=0.5)).on_noise
