"""Multiply-adds are those of the schedule; under a-STAR, of what images keep."""

from typing import Any

import numpy as np
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


def test_flops_of_a_star_are_those_of_the_patches_that_images_keep(lab: Any) -> None:
    row = row_of(lab, Way("a-star-batch", 0.6))
    most = schedule_macs(row.vit.spec, row.pruned.schedule).gmacs
    assert columns.flops(row)["GFLOPs"] < most


def test_kept_shares_are_at_most_the_rates_under_star(lab: Any) -> None:
    row = row_of(lab, Way(rho=0.6))
    keep = np.array(row.pruned.schedule.keep)
    before = np.array([row.vit.spec.num_patches, *keep[:-1]])
    assert columns.kept_shares(row) == pytest.approx((keep / before).tolist())
    assert len(columns.rates(row)) == row.vit.spec.depth
    assert min(columns.rates(row)) == pytest.approx(0.6)
