"""The printed numbers fit their columns."""

import pytest

from tests.benchmarks.scripts import script

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
