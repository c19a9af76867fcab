"""Draw the chart of a report for light and dark screens."""

from exporter.evaluation.benchmark.points import TradeOff
from exporter.evaluation.report.chart import DARK, LIGHT, png_address, trade_off_chart
from exporter.evaluation.report.page import Chart

__all__ = ["chart_of"]


def chart_of(trade_off: TradeOff, model: str) -> Chart:
    """Draw the accuracy of models against their speed."""
    words = (
        f"Loss on {trade_off.images} images, speed at batch {trade_off.batch}, all models measured interleaved "
        "in one run. Bars are 95 % intervals. Right and up is better."
    )
    light, dark = (png_address(trade_off_chart(trade_off, model, palette)) for palette in (LIGHT, DARK))
    return Chart("Accuracy against images per second", words, light=light, dark=dark)
