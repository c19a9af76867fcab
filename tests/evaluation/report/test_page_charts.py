"""The charts of a page: those that were measured, for light and for dark screens."""

from dataclasses import replace
from pathlib import Path

from exporter.evaluation.report.page import NO_CHARTS
from exporter.evaluation.report.page_charts import charts_of
from tests.evaluation.report.reports import full_report, small_report


def test_each_has_both_forms(tmp_path: Path) -> None:
    charts = charts_of(full_report(), tmp_path / "throughput.png")
    for chart in (charts.trade_off, charts.sweep):
        assert chart is not None
        assert chart.light.startswith("data:image/png;base64,") and chart.light != chart.dark
    assert (tmp_path / "throughput.png").read_bytes().startswith(b"\x89PNG")


def test_what_was_not_measured_is_not_drawn(tmp_path: Path) -> None:
    assert charts_of(small_report(), tmp_path / "t.png") == NO_CHARTS
    charts = charts_of(replace(full_report(), sweep=None), tmp_path / "t.png")
    assert charts.sweep is None and charts.trade_off is not None
    assert not (tmp_path / "t.png").exists()
