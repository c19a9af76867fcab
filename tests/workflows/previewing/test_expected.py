"""What pruning leaves is known before any work, or what it depends on is."""

from pathlib import Path
from typing import Any

import pytest

from exporter.models.registry import describe
from exporter.schedule.macs import dense_macs, schedule_macs
from exporter.workflows.previewing.expected import Expected, asked_gmacs, expected_of
from exporter.workflows.recipes.resolve import resolve
from tests.commands import Workplace


def expected(workplace: Workplace, **how: Any) -> Expected:
    job, vit = resolve(workplace.recipe(**how)), describe(workplace.request)
    return expected_of(job, job.needed_amount("a test"), vit)


def test_a_schedule_that_needs_nothing_is_known(workplace: Workplace, calibration: Path) -> None:
    spec = describe(workplace.request).spec
    for how in ({}, {"method": "star", "calibration": calibration}):
        found = expected(workplace, rho=0.5, **how)
        assert found.schedule is not None and found.schedule.rho == 0.5
        assert (found.gmacs, found.unknown) == (schedule_macs(spec, found.schedule).gmacs, "")
        assert found.macs(spec) == schedule_macs(spec, found.schedule).total


@pytest.mark.parametrize(
    ("how", "unknown"),
    [
        ({"speedup": 1.5}, "measurements on this machine"),
        ({"method": "star", "rho": 0.5}, "the calibration"),
        ({"method": "a-star", "mac_reduction": 0.3}, "the images"),
    ],
)
def test_what_a_schedule_follows_from_is_named(
    how: dict[str, Any], unknown: str, workplace: Workplace
) -> None:
    found, spec = expected(workplace, **how), describe(workplace.request).spec
    assert (found.schedule, found.unknown) == (None, unknown)
    assert found.macs(spec) == dense_macs(spec).total
    share = how.get("mac_reduction")
    assert found.gmacs == (None if share is None else pytest.approx((1 - share) * dense_macs(spec).gmacs))


def test_a_share_asks_for_its_multiply_adds(workplace: Workplace) -> None:
    spec = describe(workplace.request).spec
    assert asked_gmacs(resolve(workplace.recipe(rho=0.5)), spec) is None
    asked = asked_gmacs(resolve(workplace.recipe(mac_reduction=0.25)), spec)
    assert asked == pytest.approx(0.75 * dense_macs(spec).gmacs)
