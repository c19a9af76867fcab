"""Multiply-adds are those of the schedule."""

from typing import Any

import pytest

from exporter.core.schedule.macs import dense_macs, schedule_macs
from tests.benchmarks.papers.quick import DEIT_B
from tests.benchmarks.scripts import script

columns = script("papers/columns.py")
Way, Prepared = script("papers/tables.py").Way, script("papers/prepared.py").Prepared


def row_of(lab: Any, way: Any) -> Any:
    return Prepared(lab._vit(DEIT_B), lab.place.request(DEIT_B), way, lab.place, {})


@pytest.mark.parametrize(
    "way", [Way(rho=0.6), Way(rates={3: 0.5}, scorer="intra"), Way()]
)
def test_flops_are_those_of_the_schedule(way: Any, lab: Any) -> None:
    row = row_of(lab, way)
    dense = dense_macs(row.vit.spec).gmacs
    gmacs = schedule_macs(row.vit.spec, row.pruned.schedule).gmacs
    assert gmacs < dense or not way.prunes
    saved = 100 * (1 - gmacs / dense)
    assert columns.flops(row) == pytest.approx(
        {"GFLOPs": gmacs, "FLOPs saved, %": saved}
    )
