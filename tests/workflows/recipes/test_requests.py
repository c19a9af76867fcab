"""The records that steps are told: their limits, and that a recipe is their flat union."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from exporter.errors import RecipeError
from exporter.evaluation.benchmark.timing import LEAST_ROUNDS
from exporter.targets import ONNXRUNTIME
from exporter.vocabulary import InputKind, Layout
from exporter.workflows.recipe import Recipe
from exporter.workflows.recipe import Images, Lowering, Measuring


@pytest.mark.parametrize("rounds", [0, LEAST_ROUNDS, LEAST_ROUNDS + 1])
def test_no_rounds_or_enough_for_quartiles(rounds: int) -> None:
    assert Measuring(rounds=rounds).rounds == rounds


@pytest.mark.parametrize("rounds", [1, LEAST_ROUNDS - 1])
def test_too_few_rounds_for_quartiles(rounds: int) -> None:
    with pytest.raises(RecipeError, match=f"rounds .* {rounds} .* at least {LEAST_ROUNDS}"):
        Measuring(rounds=rounds)


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (Images, {"max_images": 0}),
        (Images, {"max_images": "all"}),
        (Images, {"max_eval_images": 0}),
        (Images, {"check_images": 0}),
        (Images, {"seed": -1}),
        (Measuring, {"batch": 0}),
        (Measuring, {"rounds": -1}),
        (Measuring, {"threads": -1}),
    ],
)
def test_numbers_out_of_range_are_named(kind: type[Images | Measuring], wrong: dict[str, Any]) -> None:
    with pytest.raises(RecipeError) as error:
        kind(**wrong)
    assert error.value.subject == next(iter(wrong))


def test_paths_may_be_text() -> None:
    images: Any = "photos"
    assert Images(images=images).images == Path("photos")


@pytest.mark.parametrize("part", [Images, Measuring])
def test_a_recipe_has_every_field_with_the_same_default(part: type[Images | Measuring]) -> None:
    whole = Recipe()
    for field in fields(part):
        assert getattr(whole, field.name) == getattr(part(), field.name)


def test_a_model_is_lowered_for_onnx_runtime_where_nothing_else_is_said() -> None:
    assert Lowering() == Lowering(ONNXRUNTIME, Layout.SHRINKING, InputKind.FLOAT32)
