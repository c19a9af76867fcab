"""Draw the charts of a report: accuracy against throughput, and throughput against multiply-adds; light or dark."""

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib.style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from exporter.evaluation.benchmark.timing import Point, RhoSweep, TradeOff, TradePoint
from exporter.evaluation.report.page import Chart, Charts
from exporter.evaluation.report.record import Report
from exporter.files import written_beside

__all__ = [
    "DARK",
    "LIGHT",
    "Palette",
    "charts_of",
    "png_address",
    "throughput_chart",
    "trade_off_chart",
]


@dataclass(frozen=True)
class Palette:
    """The colours of a chart: of the page behind it, of text, of lines and points."""

    page: str
    text: str
    grid: str
    dense: str
    pruned: str
    faint: str


# Longer names would cover other points.
LONGEST_NAME = 24
LIGHT = Palette("#ffffff", "#1c2330", "#e6e9ef", dense="#1c2330", pruned="#2f6fb5", faint="#9aa5b8")
DARK = Palette("#161b24", "#dfe5ee", "#2a3240", dense="#f0f3f8", pruned="#6cabec", faint="#7d8aa0")


def throughput_chart(sweep: RhoSweep, model: str, palette: Palette = LIGHT) -> bytes:
    """Draw a PNG: images per second over GMACs per image, with quartile bars and the curve of efficiency 1.

    The same sweep gives the same bytes with the same matplotlib. The user's matplotlib settings are ignored.
    """

    def draw(axes: Axes) -> None:
        _draw_promise(axes, sweep, palette)
        _draw_measured(axes, sweep, palette)
        axes.set_ylim(bottom=0)

    labels = ("GMACs per image, scoring included", "images per second")
    return _chart(draw, f"{model}, batch {sweep.batch}", labels, palette)


def trade_off_chart(trade_off: TradeOff, model: str, palette: Palette = LIGHT) -> bytes:
    """Draw a PNG: points of top-1 (or of agreement) against the unpruned model over images per second.

    Bars are the 95 % intervals of the front, the points that no other beats in both. A single point is no front.
    """
    alone = "pruned" if len(trade_off.points) == 1 else None

    def draw(axes: Axes) -> None:
        others = [each for each in trade_off.points if not each.front]
        best = sorted((each for each in trade_off.points if each.front), key=lambda each: each.images_per_s)
        axes.axhline(0.0, color=palette.faint, linewidth=0.8)
        if others:
            _draw_points(axes, others, palette.faint, label=alone or "measured", marker="o", linestyle="")
        if best:
            _draw_points(axes, best, palette.pruned, label=alone or "front", marker="o", linestyle="-")
        rates = list(trade_off.unpruned.values())
        axes.plot(rates, [0.0] * len(rates), "s", color=palette.dense, label="unpruned")
        unpruned = [(name, rate, 0.0) for name, rate in trade_off.unpruned.items()]
        _annotate(axes, unpruned, palette.dense, offset=(-8, -14))
        for some, colour in ((others, palette.text), (best, palette.pruned)):
            named = [(each.label, each.images_per_s, -each.loss_points) for each in some]
            _annotate(axes, [each for each in named if len(each[0]) <= LONGEST_NAME], colour)
        axes.set_xlim(left=0)
        axes.margins(x=0.3, y=0.25)

    points = "top-1" if trade_off.metric == "top1" else "agreement"
    labels = (f"images per second, batch {trade_off.batch}", f"points of {points} against the unpruned model")
    return _chart(draw, model, labels, palette)


def _chart(
    draw: Callable[[Axes], None], title: str, labels: tuple[str, str], palette: Palette = LIGHT
) -> bytes:
    """Return a PNG of what `draw` puts on the axes; `labels` are those of x and y."""
    with matplotlib.style.context("default"):
        figure = Figure(figsize=(7.2, 4.4), dpi=150, layout="constrained", facecolor=palette.page)
        axes = figure.subplots()
        axes.set_facecolor(palette.page)
        draw(axes)
        axes.set_title(title, loc="left", fontsize=11, color=palette.text)
        axes.set_xlabel(labels[0], color=palette.text)
        axes.set_ylabel(labels[1], color=palette.text)
        axes.tick_params(colors=palette.text)
        axes.grid(color=palette.grid, linewidth=0.8)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color(palette.faint)
        axes.legend(frameon=False, fontsize=9, labelcolor=palette.text)
        content = BytesIO()
        # matplotlib would write its version into the file.
        figure.savefig(content, format="png", metadata={"Software": None})
    return content.getvalue()


def _draw_points(axes: Axes, points: Sequence[TradePoint], colour: str, **style: Any) -> None:
    """Draw models with the intervals of their losses, where these are known."""
    bars = [each.interval_points or (each.loss_points, each.loss_points) for each in points]
    below = [high - each.loss_points for each, (_, high) in zip(points, bars, strict=True)]
    above = [each.loss_points - low for each, (low, _) in zip(points, bars, strict=True)]
    lengths = np.maximum([below, above], 0.0)
    x, y = [each.images_per_s for each in points], [-each.loss_points for each in points]
    shape: dict[str, Any] = {"markersize": 5, "linewidth": 1.4, "elinewidth": 0.9, "capsize": 2.5}
    axes.errorbar(x, y, yerr=lengths, color=colour, **shape, **style)


def _annotate(
    axes: Axes,
    named: Sequence[tuple[str, float, float]],
    colour: str,
    offset: tuple[float, float] = (6, 6),
) -> None:
    """Write a name beside each point (name, x, y)."""
    for name, x, y in named:
        axes.annotate(name, (x, y), fontsize=7.5, color=colour, xytext=offset, textcoords="offset points")


def _columns(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]


def png_address(content: bytes) -> str:
    """Encode a PNG as a data URI."""
    return "data:image/png;base64," + base64.b64encode(content).decode("ascii")


def _draw_promise(axes: Axes, sweep: RhoSweep, palette: Palette) -> None:
    """Draw the throughput at efficiency 1, inversely proportional to the multiply-adds."""
    least = min([point.gmacs for point in sweep.points], default=sweep.dense_gmacs)
    gmacs = np.linspace(least, sweep.dense_gmacs, 100)
    promised = sweep.dense.images_per_s * sweep.dense_gmacs / gmacs
    label = "proportional to the MACs, E = 1"
    axes.plot(gmacs, promised, "--", color=palette.faint, linewidth=1.2, label=label)


def _draw_measured(axes: Axes, sweep: RhoSweep, palette: Palette) -> None:
    points = sorted(sweep.points, key=lambda point: point.gmacs)
    x = [point.gmacs for point in points]
    y = [point.throughput.images_per_s for point in points]
    bars = np.array([_bar(point) for point in points]).reshape(-1, 2).T
    style: dict[str, Any] = {"color": palette.pruned, "marker": "o", "markersize": 4.5, "linewidth": 1.4}
    axes.errorbar(x, y, yerr=bars, label="pruned, by rho", capsize=2.5, **style)
    for point in points:
        axes.annotate(
            f"{point.rho:.4g}" if point.rho is not None else "rates",
            (point.gmacs, point.throughput.images_per_s),
            textcoords="offset points",
            xytext=(-5, -4),
            ha="right",
            va="top",
            fontsize=8,
            color=palette.pruned,
        )
    axes.plot(
        sweep.dense_gmacs, sweep.dense.images_per_s, "s", color=palette.dense, markersize=6, label="dense"
    )


def _bar(point: Point) -> tuple[float, float]:
    """Return the bar's length below and above the median, in images per second; below is the slow quartile."""
    fast_ms, slow_ms = point.throughput.quartiles_ms
    median, batch = point.throughput.images_per_s, point.throughput.batch
    return max(median - batch / slow_ms * 1e3, 0.0), max(batch / fast_ms * 1e3 - median, 0.0)


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
    return _in_both_forms(title, words, lambda palette: trade_off_chart(trade_off, model, palette))


def _of_sweep(sweep: RhoSweep, model: str) -> Chart:
    words = (
        f"Measured interleaved in one run of {len(sweep.dense.rounds_ms)} rounds at batch {sweep.batch}. Bars "
        "are quartiles. E is the speed-up divided by the ratio of multiply-adds."
    )
    title = "Throughput against multiply-adds"
    return _in_both_forms(title, words, lambda palette: throughput_chart(sweep, model, palette))


def _in_both_forms(title: str, words: str, draw: Callable[[Palette], bytes]) -> Chart:
    return Chart(title, words, light=png_address(draw(LIGHT)), dark=png_address(draw(DARK)))
