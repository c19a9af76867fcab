"""Plans are of DeiT-B's twelve layers, and trainings those of the papers."""

from collections import Counter
from typing import Any

import pytest

from exporter.core.base.vocabulary import UnitType
from exporter.depth.collect import steps_of
from exporter.training.settings import FinetuneSettings
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


def test_shares_of_the_noisy_splits_add_up() -> None:
    (row,) = TABLES["depth-robustness"].rows
    assert sum(row.printed[:3]) == pytest.approx(100)


def test_every_unit_is_trained_twice_from_the_same_accuracy() -> None:
    """Without an activation nothing is left, without attention nearly all: the authors' argument rests on it."""
    whole, *rows = TABLES["depth-recovery"].rows
    assert whole.printed == (86.8, None)
    before: dict[Any, list[float]] = {}
    for row in rows:
        assert row.way.depth.units == 1
        before.setdefault(
            (row.way.depth.attention, row.way.depth.activation), []
        ).append(row.printed[0])
        assert row.printed[1] > 83
    assert len(before) == 2 * DEPTH
    assert all(first == second for first, second in before.values())
    assert all(
        values[0] > 85 if attention else values[0] < 5
        for (attention, _), values in before.items()
    )
    assert [row.way.training["epochs"] for row in rows] == [10] * 24 + [50] * 24


def test_the_shorter_trainings_are_those_of_the_papers() -> None:
    """The learning rate is 5e-5 for 512 images of a batch."""
    tuned = [
        row.way.training
        for row in TABLES["depth-models"].rows
        if row.way and row.way.training
    ]
    assert len(tuned) == 2
    for training in tuned:
        assert FinetuneSettings(**training).lr == pytest.approx(
            5e-5 * training["batch_size"] / 512
        )


def test_a_collection_of_eight_units_has_every_printed_sample() -> None:
    gone, found = Counter[UnitType](), set()
    for step in steps_of(dict.fromkeys(UnitType, DEPTH - 1), 8, 1):
        gone = gone if step.place > 1 else Counter()
        gone[step.unit] += step.count
        found.add((gone[UnitType.ATTENTION], gone[UnitType.ACTIVATION]))
    assert {row.way.collected for row in TABLES["depth-samples"].rows} <= found | {
        (0, 0)
    }
