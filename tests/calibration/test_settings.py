"""What a calibration can be told, and how many classes that explains."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.calibration.settings import CalibrationSettings
from exporter.errors import CalibrationError, RecipeError


@given(st.integers(1, 2000), st.none() | st.integers(1, 2000))
def test_gamma_is_six_or_all_classes_unless_it_is_said(classes: int, gamma: int | None) -> None:
    settings = CalibrationSettings(gamma=gamma)
    if gamma is None:
        assert settings.classes_of(classes, "tiny") == min(6, classes)
    elif gamma <= classes:
        assert settings.classes_of(classes, "tiny") == gamma
    else:
        with pytest.raises(CalibrationError, match=f"got {gamma} .* at most {classes}, the classes of tiny"):
            settings.classes_of(classes, "tiny")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"protocol": "some"}, r"protocol \| got 'some' \| need one of all, paper"),
        ({"normalize": "max"}, r"normalize \| got 'max' \| need one of none, sum, minmax"),
        ({"dtype": "float16"}, r"dtype \| got 'float16' \| need one of float64, float32"),
        ({"max_images": 0}, r"max_images \| got 0 \| need an integer from 1"),
        (
            {"max_images": "auto", "protocol": "paper"},
            r"max_images \| got auto for protocol paper \| need a num",
        ),
        ({"gamma": 0}, r"gamma \| got 0 \| need an integer from 1"),
        ({"seed": -1}, r"seed \| got -1 \| need an integer from 0"),
    ],
)
def test_other_values_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        CalibrationSettings(**wrong)


def test_the_papers_numbers_are_the_defaults() -> None:
    settings = CalibrationSettings()
    assert (settings.rounds, settings.images_per_round, settings.acs_images) == (10, 192, 500)
    assert CalibrationSettings(max_images=None, gamma=None) == replace(settings, max_images=None)
