"""Benchmark settings that are refused."""

from typing import Any

import pytest

from exporter.errors import RecipeError
from exporter.evaluation.benchmark.settings import BenchSettings


def test_the_least_of_everything_is_allowed() -> None:
    settings = BenchSettings(batches=(1,), rounds=5, warmup=0, threads=0, profile_runs=0)
    assert settings.batches == (1,)


@pytest.mark.parametrize(
    "wrong",
    [
        {"batches": ()},
        {"batches": (1, 0)},
        {"rounds": 4},
        {"warmup": -1},
        {"threads": -1},
        {"profile_runs": -1},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_what_measures_nothing(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(RecipeError) as error:
        BenchSettings(**wrong)
    assert error.value.subject == name
