"""The chart of a page, for light and for dark screens."""

from exporter.evaluation.report.page_charts import chart_of
from tests.evaluation.report.reports import trade_off


def test_it_has_both_forms() -> None:
    chart = chart_of(trade_off(), "deit")
    assert chart.light.startswith("data:image/png;base64,") and chart.light != chart.dark
    assert "1000 images" in chart.words and "batch 8" in chart.words
