"""The record of a compilation."""

from dataclasses import replace

from exporter.core.base.records import Pair
from tests.report.reports import full_report, small_report


def test_the_share_that_is_saved() -> None:
    for pruned, saved in ((3.0, 0.25), (4.0, 0.0)):
        gmacs = {"dense": 3.5, "pruned": pruned, "scoring": 0.5, "as_it_came": 4.0}
        assert replace(full_report(), gmacs=gmacs).saved == saved


def test_both_models_are_what_pytorch_computes_or_the_whole_fails() -> None:
    report = small_report()
    failed = replace(report.parity.dense, passed=False)
    assert report.passed
    assert not replace(report, parity=Pair(failed, report.parity.pruned)).passed
