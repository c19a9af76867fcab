"""The row logic that the kernel runs, compiled for the CPU, against the reference."""

import numpy as np
import pytest

from tests.plugins.implementations import HostLibrary, mismatches
from tests.plugins.rows import Case, cases

# It is compiled.
pytestmark = pytest.mark.exhaustive


def test_every_row_equals_the_reference(host_library: HostLibrary) -> None:
    rows = wrong = 0
    for case in cases():
        result = host_library(case)
        assert result is not None
        rows += len(case.score)
        wrong += mismatches(case, result)
    assert rows >= 20_000
    assert wrong == 0


@pytest.mark.parametrize("mass", [0.0, -0.5, 1.5, float("nan")])
def test_mass_out_of_range_is_refused(host_library: HostLibrary, mass: float) -> None:
    assert host_library(Case(np.ones((1, 3), np.float32), np.array([3]), mass)) is None


def test_more_patches_than_are_exact_are_refused(host_library: HostLibrary) -> None:
    assert (
        host_library(Case(np.ones((1, 4097), np.float32), np.array([4097]), 0.5))
        is None
    )


def test_counts_out_of_range_read_no_other_row(host_library: HostLibrary) -> None:
    score = np.array([[1, 2], [9, 9]], np.float32)
    result = host_library(Case(score, np.array([0, 7]), 0.5))
    assert result is not None
    assert result.keep_index.tolist() == [[0], [0]]
