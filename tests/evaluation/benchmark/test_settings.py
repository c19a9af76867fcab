"""What a benchmark cannot be told."""

from typing import Any

import pytest

from exporter.errors import RecipeError
from exporter.evaluation.benchmark.settings import BenchSettings


def test_the_least_of_everything_is_allowed() -> None:
    settings = BenchSettings(batches=(1,), rounds=5, warmup=0, threads=0, profile_runs=0)
    assert settings.batches == (1,)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"batches": ()}, "batches | got none"),
        ({"batches": (1, 0)}, "batches | got 1,0"),
        ({"rounds": 4}, "rounds | got 4 | need at least 5"),
        ({"warmup": -1}, "warmup | got -1"),
        ({"threads": -1}, "threads | got -1"),
        ({"profile_runs": -1}, "profile_runs | got -1"),
    ],
)
def test_what_measures_nothing(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError) as error:
        BenchSettings(**wrong)
    assert message in str(error.value)
