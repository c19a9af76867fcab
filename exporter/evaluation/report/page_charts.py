"""Draw the charts of a report for light and dark screens."""

from collections.abc import Callable
from pathlib import Path

from exporter.evaluation.benchmark.points import RhoSweep, TradeOff
from exporter.evaluation.report.chart import (
    DARK,
    LIGHT,
    Palette,
    png_address,
    throughput_chart,
    trade_off_chart,
)
from exporter.evaluation.report.page import Chart, Charts
from exporter.evaluation.report.record import Report
from exporter.files import written_beside

__all__ = ["charts_of"]


def charts_of(report: Report, sweep_path: Path) -> Charts:
    """Draw the charts of a report that has a trade-off or a sweep; write that of the sweep also to a file.

    Raises:
        OutputError: The file cannot be written.
    """
    trade_off, sweep = report.trade_off, report.sweep
    if sweep is not None:
        with written_beside(sweep_path) as partial:
            partial.write_bytes(throughput_chart(sweep, report.model))
    return Charts(
        None if trade_off is None else _of_trade_off(trade_off, report.model),
        None if sweep is None else _of_sweep(sweep, report.model),
    )


def _of_trade_off(trade_off: TradeOff, model: str) -> Chart:
    words = (
        f"Loss on {trade_off.images} images, speed at batch {trade_off.batch}, all models measured interleaved "
        "in one run. Bars are 95 % intervals. Right and up is better."
    )
    title = "Accuracy against images per second"
    return _chart(title, words, lambda palette: trade_off_chart(trade_off, model, palette))


def _of_sweep(sweep: RhoSweep, model: str) -> Chart:
    words = (
        f"Measured interleaved in one run of {len(sweep.dense.rounds_ms)} rounds at batch {sweep.batch}. Bars "
        "are quartiles. E is the speed-up divided by the ratio of multiply-adds."
    )
    title = "Throughput against multiply-adds"
    return _chart(title, words, lambda palette: throughput_chart(sweep, model, palette))


def _chart(title: str, words: str, draw: Callable[[Palette], bytes]) -> Chart:
    return Chart(title, words, light=png_address(draw(LIGHT)), dark=png_address(draw(DARK)))
