"""Speed against loss: of one report, of several, or of a search."""

from dataclasses import replace

from exporter.core.base.records import Pair
from exporter.report.record import Report
from exporter.report.trade_off import trade_off_of
from tests.report.reports import full_report, judged, small_report, timed, trade_off


def test_both_models_are_a_trade_off_unless_more_were_searched() -> None:
    report = full_report()
    assert trade_off_of([report]) == trade_off() and report.speed.at is not None
    assert (
        report.quality.pair is not None and report.quality.pair.loss_points is not None
    )
    alone = trade_off_of([replace(report, searched=None)])
    assert alone is not None
    (point,) = alone.points
    speeds = report.speed.at.throughput
    assert alone.unpruned == {report.target: speeds.dense.images_per_s}
    assert alone.batch == report.speed.batch
    assert (point.images_per_s, point.front) == (speeds.pruned.images_per_s, True)
    assert point.loss_points == report.quality.pair.loss_points
    assert point.interval_points == report.quality.pair.loss_interval_points
    slower = replace(
        report.speed.batches[-1], throughput=Pair(speeds.pruned, speeds.dense)
    )
    drawn = trade_off_of([timed(replace(report, searched=None), slower)])
    assert drawn is not None and drawn.points[0].front == (
        report.quality.pair.loss_points < 0
    )
    assert trade_off_of([small_report()]) is None


def test_the_front_of_several_models_is_what_no_other_beats() -> None:
    report = full_report()
    assert report.quality.pair is not None

    def losing(points: float) -> Report:
        assert report.quality.pair is not None
        return judged(report, pair=replace(report.quality.pair, loss_points=points))

    found = trade_off_of([losing(1.0), losing(2.0), losing(-1.0)])
    assert found is not None
    assert [point.front for point in found.points] == [False, False, True]
    assert {point.label for point in found.points} == {"star"}
    assert trade_off_of([report, small_report()]) is None
