"""What the settings of an evaluation refuse."""

from pathlib import Path
from typing import Any

import pytest

from exporter.errors import RecipeError
from exporter.workflows.evaluating.settings import EvalSettings


def test_a_subset_is_that_of_a_class_map() -> None:
    with pytest.raises(RecipeError, match=r"subset \| got no class map"):
        EvalSettings(subset=True)
    with pytest.raises(RecipeError, match="subset"):
        EvalSettings(subset=True, class_map=Path("map.json"), labels=False)
    assert EvalSettings(subset=True, class_map=Path("map.json")).subset


@pytest.mark.parametrize(
    "wrong", [{"within": 0.0}, {"within": 100.0}, {"batch": 0}, {"max_eval_images": 0}], ids=str
)
def test_settings_out_of_range(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(RecipeError, match=name):
        EvalSettings(**wrong)
