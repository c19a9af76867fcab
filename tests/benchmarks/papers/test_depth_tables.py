"""The printed samples are those that the predictor's tests fit; plans are of DeiT-B's twelve layers."""

from tests.benchmarks.scripts import script
from tests.depth.published import DEPTH, KEPT

TABLES = script("papers/depth_tables.py").TABLES


def test_samples_are_those_that_the_predictors_tests_fit() -> None:
    found = {row.way.collected: row.printed[0] for row in TABLES["depth-samples"].rows}
    assert found == {(DEPTH - first, DEPTH - second): accuracy for (first, second), accuracy in KEPT.items()}


def test_plans_fit_the_model_and_their_labels() -> None:
    rows = TABLES["depth-models"].rows
    units = [(len(row.way.depth.attention), len(row.way.depth.activation)) for row in rows if row.way]
    assert units == [(0, 0), (6, 0), (5, 5), (0, 0)]
    for row in rows:
        assert len(row.printed) == len(TABLES["depth-models"].columns)
        if row.way:
            row.way.depth.check_fits(DEPTH)
