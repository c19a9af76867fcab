"""Reductions: rows by name, and what each says."""

import pytest

from exporter.errors import RecipeError
from exporter.schedule.reductions import DROP, MERGE, MERGE_WEIGHTED, REDUCTIONS, reduction_named


@pytest.mark.parametrize("name", REDUCTIONS)
def test_a_row_is_found_by_its_name(name: str) -> None:
    assert reduction_named(name).name == name


def test_what_merges_and_what_weighs_keys() -> None:
    assert [each.merges for each in (DROP, MERGE, MERGE_WEIGHTED)] == [False, True, True]
    assert [each.weighs_keys for each in (DROP, MERGE, MERGE_WEIGHTED)] == [False, False, True]


def test_a_name_that_is_none() -> None:
    with pytest.raises(RecipeError, match=r"reduction \| got 'melt' \| need one of drop, merge"):
        reduction_named("melt")
