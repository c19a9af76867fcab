"""A plan: its layers counted from 1, sorted, each once, none beyond the depth."""

import pytest

from exporter.core.base.canonical_json import from_json, to_json
from exporter.core.base.errors import RecipeError
from exporter.core.base.vocabulary import AttentionVariant
from exporter.depth.plan import ChoiceSettings, DepthPlan


def test_it_is_sorted_and_counts_its_units() -> None:
    plan = DepthPlan((8, 1, 4), (3,))
    assert plan == DepthPlan((1, 4, 8), (3,))
    assert plan.attention == (1, 4, 8)
    assert plan.units == 4
    assert plan.variant == AttentionVariant.REMOVE
    assert DepthPlan().units == 0


def test_it_survives_json() -> None:
    plan = DepthPlan((2, 1), (4,), AttentionVariant.NOSE)
    text = to_json(plan)
    assert text == '{"activation":[4],"attention":[1,2],"variant":"nose"}'
    assert from_json(DepthPlan, text, source="plan") == plan


def test_what_is_refused() -> None:
    with pytest.raises(RecipeError, match="no number of units"):
        ChoiceSettings()
    with pytest.raises(RecipeError, match="step"):
        ChoiceSettings(units=2, step=3)
