"""What the settings of a search refuse."""

import pytest

from exporter.depth.plan import ChoiceSettings, CollectSettings, UnitSettings
from exporter.errors import RecipeError
from exporter.vocabulary import UnitType


def test_layers_that_stay_by_type() -> None:
    settings = UnitSettings(keep_attention=(1,), keep_activation=(2, 3))
    assert [settings.kept(unit) for unit in UnitType] == [(1,), (2, 3)]


def test_what_is_refused() -> None:
    with pytest.raises(RecipeError, match="attention_units"):
        ChoiceSettings()
    with pytest.raises(RecipeError, match="step"):
        CollectSettings(units=2, step=3)
