"""Plans are of DeiT-B's twelve layers, and rows have their columns."""

import pytest

from tests.benchmarks.scripts import script
from tests.depth.published import DEPTH

TABLES = script("papers/depth_tables.py").TABLES


def test_plans_fit_the_model_and_their_labels() -> None:
    rows = TABLES["depth-models"].rows
    units = [
        (len(row.way.depth.attention), len(row.way.depth.activation))
        for row in rows
        if row.way
    ]
    assert units == [(0, 0), (6, 0), (5, 5), (0, 0)]
    for row in rows:
        if row.way:
            row.way.depth.check_fits(DEPTH)


@pytest.mark.parametrize("name", TABLES)
def test_every_row_has_its_columns_and_a_way_or_a_reason(name: str) -> None:
    for row in TABLES[name].rows:
        assert len(row.printed) == len(TABLES[name].columns)
        assert (row.way is None) == bool(row.why), row.label
