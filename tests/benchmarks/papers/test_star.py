"""The printed numbers fit their columns, each other, and those that the schedule's tests compare with."""

import pytest

from tests.benchmarks.scripts import script
from tests.core.schedule.published import MODELS

TABLES = script("papers/star.py").TABLES


@pytest.mark.parametrize("name", TABLES)
def test_printed_numbers_fit_their_columns(name: str) -> None:
    table = TABLES[name]
    accuracy = [
        at for at, column in enumerate(table.columns) if column.startswith("top")
    ]
    for row in table.rows:
        assert len(row.printed) == len(table.columns), row.label
        assert (row.way is None) == bool(row.why), row.label
        assert all(
            25 < value < 100
            for at in accuracy
            if (value := row.printed[at]) is not None
        )


def test_printed_flops_follow_from_what_they_save() -> None:
    """Table 1 prints both; a digit read wrongly would contradict the other. Peers round more coarsely."""
    whole: dict[str, float] = {}
    for row in TABLES["star-1"].rows:
        flops, saved = row.printed[2], row.printed[3]
        if row.label.endswith("baseline"):
            whole[row.model] = flops
        elif saved is not None:
            close = 0.1 if "STAR" in row.label else 3.5
            assert saved == pytest.approx(
                100 * (1 - flops / whole[row.model]), abs=close
            ), row.label


@pytest.mark.parametrize("name", ["star-4", "star-5"])
def test_flops_by_rho_are_those_that_the_schedules_tests_compare_with(
    name: str,
) -> None:
    for row in TABLES[name].rows:
        assert row.printed[0] == MODELS[row.model].gmacs[row.way.rho or 1.0], row.label
