"""One limit is given, and a promise needs a loss to promise."""

from typing import Any

import pytest

from exporter.errors import RecipeError
from exporter.workflows.tuning.settings import TuneSettings


def test_one_limit_is_enough() -> None:
    assert TuneSettings(max_drop=0.5).metric == "top1"
    assert TuneSettings(max_ms=10).max_drop is None
    assert TuneSettings(max_drop=0.5, confident=True).confident


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({}, "max_drop"),
        ({"max_drop": 0.5, "max_ms": 3}, "max_drop"),
        ({"max_drop": -0.5}, "max_drop"),
        ({"max_ms": 0}, "max_ms"),
        ({"max_ms": 5, "confident": True}, "confident"),
        ({"max_drop": 0.5, "metric": "f1"}, "metric"),
        ({"max_drop": 0.5, "runtime": "abacus"}, "runtime"),
        ({"max_drop": 0.5, "minutes": 0}, "minutes"),
        ({"max_drop": 0.5, "finalists": 0}, "finalists"),
    ],
)
def test_others_are_refused(values: dict[str, Any], name: str) -> None:
    with pytest.raises(RecipeError, match=name):
        TuneSettings(**values)
