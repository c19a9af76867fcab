"""Reductions: rows by name, and the methods with which each can be combined."""

import pytest

from exporter.errors import RecipeError
from exporter.schedule.reductions import REDUCTIONS, check_reduction, reduction_named
from exporter.vocabulary import Method


@pytest.mark.parametrize("name", REDUCTIONS)
def test_a_row_is_found_by_its_name(name: str) -> None:
    assert reduction_named(name).name == name
    check_reduction(name, Method.STAR)


def test_a_name_that_is_none() -> None:
    with pytest.raises(RecipeError, match=r"reduction \| got 'melt' \| need one of drop, merge"):
        check_reduction("melt", Method.STAR)


@pytest.mark.parametrize("method", [Method.A_STAR, Method.A_STAR_BATCH])
def test_only_star_merges(method: Method) -> None:
    check_reduction("drop", method)
    for name in (name for name, row in REDUCTIONS.items() if row.merges):
        with pytest.raises(RecipeError, match=f"{name} for {method}"):
            check_reduction(name, method)
