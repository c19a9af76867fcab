"""What a build can be told, and the batches that each profile takes."""

from typing import Any

import pytest

from exporter.errors import RecipeError
from exporter.runtimes.tensorrt.settings import HARDWARE, BuildSettings


def test_a_profile_a_batch() -> None:
    assert BuildSettings(batches=(1, 8, 32)).profiles == ((1, 1), (8, 8), (32, 32))


def test_any_batch_falls_into_one_profile() -> None:
    profiles = BuildSettings(batches=(1, 8, 32), any_batch=True).profiles
    assert profiles == ((1, 1), (2, 8), (9, 32))
    for batch in range(1, 33):
        assert sum(low <= batch <= high for low, high in profiles) == 1


@pytest.mark.parametrize("hardware", HARDWARE)
def test_levels_by_tensorrts_names(hardware: str) -> None:
    level = BuildSettings(hardware=hardware).hardware_level
    assert level in ("NONE", "AMPERE_PLUS", "SAME_COMPUTE_CAPABILITY")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"batches": ()}, "batches | got none"),
        ({"batches": (0, 1)}, "batches | got 0,1"),
        ({"batches": (8, 1)}, "each at least 1, ascending"),
        ({"batches": (1, 1)}, "each at least 1, ascending"),
        ({"workspace_mib": -1}, "workspace_mib | got -1"),
        ({"hardware": "volta"}, "hardware | got volta"),
    ],
)
def test_what_builds_nothing(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError) as error:
        BuildSettings(**wrong)
    assert message in str(error.value)
