"""Settings of a build, and the batches of each profile."""

from pathlib import Path

import pytest

from exporter.errors import RecipeError
from exporter.runtimes.tensorrt.settings import BuildSettings


def test_a_profile_a_batch() -> None:
    assert BuildSettings(batches=(1, 8, 32)).profiles == ((1, 1), (8, 8), (32, 32))


def test_any_batch_falls_into_one_profile() -> None:
    profiles = BuildSettings(batches=(1, 8, 32), any_batch=True).profiles
    assert profiles == ((1, 1), (2, 8), (9, 32))
    for batch in range(1, 33):
        assert sum(low <= batch <= high for low, high in profiles) == 1


def test_a_library_is_stored_in_version_compatible_engines_alone() -> None:
    with pytest.raises(RecipeError, match="with --version-compatible"):
        BuildSettings(serialise_plugin=True)
    stored = BuildSettings(
        plugin=Path("lib.so"), serialise_plugin=True, version_compatible=True
    )
    assert stored.without_plugin == BuildSettings(version_compatible=True)


@pytest.mark.parametrize("batches", [(), (8, 1), (1, 1)])
def test_batches_that_build_nothing(batches: tuple[int, ...]) -> None:
    with pytest.raises(RecipeError) as error:
        BuildSettings(batches=batches)
    assert error.value.subject == "batches"
