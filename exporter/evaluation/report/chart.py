"""Draw the chart of throughput against multiply-adds."""

import base64
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from typing import Any

import matplotlib.style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from exporter.evaluation.benchmark.points import Point, RhoSweep

__all__ = ["costs_chart", "front_chart", "png_address", "throughput_chart"]

DENSE_COLOUR, PRUNED_COLOUR, PROMISE_COLOUR = "#1c2330", "#2f6fb5", "#9aa5b8"


def throughput_chart(sweep: RhoSweep, model: str) -> bytes:
    """Draw a PNG: images per second over GMACs per image, with quartile bars and the curve of efficiency 1.

    The same sweep gives the same bytes with the same matplotlib. The user's matplotlib settings are ignored.
    """

    def draw(axes: Axes) -> None:
        _draw_promise(axes, sweep)
        _draw_measured(axes, sweep)
        axes.set_ylim(bottom=0)

    labels = ("GMACs per image, scoring included", "images per second")
    return _chart(draw, f"{model}, batch {sweep.batch}", labels)


def front_chart(
    tried: Sequence[tuple[float, float]],
    front: Sequence[tuple[float, float]],
    dense: Mapping[str, float],
    title: str,
) -> bytes:
    """Draw a PNG: points of top-1 against images per second, with the front and the unpruned models.

    Args:
        tried: Images per second, and points of top-1 against the unpruned model, of every measured model.
        front: Those of them that no other beats in both.
        dense: Images per second of the unpruned model by target.
        title: Of the chart.
    """

    def draw(axes: Axes) -> None:
        axes.plot(*_columns(tried), "o", color=PROMISE_COLOUR, markersize=4, label="measured")
        axes.plot(*_columns(front), "o-", color=PRUNED_COLOUR, markersize=5, label="front")
        axes.plot(list(dense.values()), [0.0] * len(dense), "s", color=DENSE_COLOUR, label="unpruned")
        for target, rate in dense.items():
            axes.annotate(
                target, (rate, 0.0), rotation=60, fontsize=7, xytext=(0, 6), textcoords="offset points"
            )
        axes.set_xlim(left=0)
        axes.margins(y=0.25)

    return _chart(draw, title, ("images per second", "points against the unpruned model"))


def costs_chart(
    lines: Mapping[str, Sequence[tuple[float, float]]], chosen: tuple[float, float], title: str
) -> bytes:
    """Draw a PNG of up to three lines and the chosen point: predicted accuracy in percent over GMACs per image."""

    def draw(axes: Axes) -> None:
        colours = (PRUNED_COLOUR, DENSE_COLOUR, PROMISE_COLOUR)
        for (name, points), colour in zip(lines.items(), colours, strict=False):
            axes.plot(*_columns(points), "o-", color=colour, markersize=4, linewidth=1.4, label=name)
        axes.plot(*chosen, "D", color=PRUNED_COLOUR, markersize=8, label="chosen")

    return _chart(draw, title, ("GMACs per image, scoring included", "predicted top-1, %"))


def _chart(draw: Callable[[Axes], None], title: str, labels: tuple[str, str]) -> bytes:
    """Return a PNG of what `draw` puts on the axes; `labels` are those of x and y."""
    with matplotlib.style.context("default"):
        figure = Figure(figsize=(7.2, 4.4), dpi=150, layout="constrained")
        axes = figure.subplots()
        draw(axes)
        axes.set_title(title, loc="left", fontsize=11)
        axes.set_xlabel(labels[0])
        axes.set_ylabel(labels[1])
        axes.grid(color="#e6e9ef", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=9)
        content = BytesIO()
        # matplotlib would write its version into the file.
        figure.savefig(content, format="png", metadata={"Software": None})
    return content.getvalue()


def _columns(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]


def png_address(content: bytes) -> str:
    """Encode a PNG as a data URI."""
    return "data:image/png;base64," + base64.b64encode(content).decode("ascii")


def _draw_promise(axes: Axes, sweep: RhoSweep) -> None:
    """Draw the throughput at efficiency 1, inversely proportional to the multiply-adds."""
    least = min([point.gmacs for point in sweep.points], default=sweep.dense_gmacs)
    gmacs = np.linspace(least, sweep.dense_gmacs, 100)
    promised = sweep.dense.images_per_s * sweep.dense_gmacs / gmacs
    axes.plot(
        gmacs, promised, "--", color=PROMISE_COLOUR, linewidth=1.2, label="proportional to the MACs, E = 1"
    )


def _draw_measured(axes: Axes, sweep: RhoSweep) -> None:
    points = sorted(sweep.points, key=lambda point: point.gmacs)
    x = [point.gmacs for point in points]
    y = [point.throughput.images_per_s for point in points]
    bars = np.array([_bar(point) for point in points]).reshape(-1, 2).T
    style: dict[str, Any] = {"color": PRUNED_COLOUR, "marker": "o", "markersize": 4.5, "linewidth": 1.4}
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
            color=PRUNED_COLOUR,
        )
    axes.plot(
        sweep.dense_gmacs, sweep.dense.images_per_s, "s", color=DENSE_COLOUR, markersize=6, label="dense"
    )


def _bar(point: Point) -> tuple[float, float]:
    """Return the bar's length below and above the median, in images per second; below is the slow quartile."""
    fast_ms, slow_ms = point.throughput.quartiles_ms
    median, batch = point.throughput.images_per_s, point.throughput.batch
    return max(median - batch / slow_ms * 1e3, 0.0), max(batch / fast_ms * 1e3 - median, 0.0)
