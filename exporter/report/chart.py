"""Draw the chart of accuracy against throughput, for light and for dark screens."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np

from exporter.measure.benchmark import TradeOff, TradePoint
from exporter.report import words

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Chart:
    """A chart of the page: what it shows in words, and the data URIs for light and dark screens."""

    words: str
    light: str
    dark: str


# Styles of matplotlib, for light and for dark screens.
LIGHT, DARK = "default", "dark_background"
# Colours that are seen on both.
FRONT, BEATEN, UNPRUNED = "tab:blue", "tab:gray", "tab:orange"
# Longer names would cover other points.
LONGEST_NAME = 24


def trade_off_chart(trade_off: TradeOff, model: str, style: str = LIGHT) -> bytes:
    """Draw a PNG: points of top-1 (or of agreement) lost, downwards, over images per second.

    Bars are the 95 % intervals of the front, the points that no other beats in both. A single point is no front.
    """
    # Most jobs draw no chart.
    import matplotlib.style  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    with matplotlib.style.context(["default", style]):
        figure = Figure(figsize=(7.2, 4.4), dpi=150, layout="constrained")
        axes = figure.subplots()
        _draw(axes, trade_off)
        axes.set_title(model, loc="left", fontsize=11)
        axes.grid(alpha=0.3)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=9)
        content = BytesIO()
        # matplotlib would write its version into the file.
        figure.savefig(content, format="png", metadata={"Software": None})
    return content.getvalue()


def _draw(axes: "Axes", trade_off: TradeOff) -> None:
    alone = "pruned" if len(trade_off.points) == 1 else ""
    beaten = [point for point in trade_off.points if not point.front]
    front = [point for point in trade_off.points if point.front]
    front.sort(key=lambda point: point.images_per_s)
    axes.axhline(0.0, color=BEATEN, linewidth=0.8)
    if beaten:
        _draw_points(axes, beaten, BEATEN, alone or "measured", linestyle="")
    if front:
        _draw_points(axes, front, FRONT, alone or "front", linestyle="-")
    _draw_unpruned(axes, trade_off)
    for points in (beaten, front):
        named = [
            (point.label, point.images_per_s, point.loss_points)
            for point in points
            if len(point.label) <= LONGEST_NAME
        ]
        _annotate(axes, named)
    axes.set_xlim(left=0)
    axes.margins(x=0.3, y=0.25)
    measure = "top-1" if trade_off.metric == "top1" else "agreement"
    reference = "model in fp32" if trade_off.unpruned_loss else "unpruned model"
    axes.set_xlabel(f"images per second, batch {trade_off.batch}")
    axes.set_ylabel(f"points of {measure}, {reference}: 0")
    axes.invert_yaxis()
    axes.yaxis.set_major_formatter(lambda lost, _: words.points(lost))


def _draw_unpruned(axes: "Axes", trade_off: TradeOff) -> None:
    """Draw the unpruned model on every target, with its name."""
    loss = trade_off.unpruned_loss
    named = [(name, rate, loss) for name, rate in trade_off.unpruned.items()]
    rates = [rate for _, rate, _ in named]
    axes.plot(rates, [loss] * len(rates), "s", color=UNPRUNED, label="unpruned")
    _annotate(axes, named, offset=(-8, -14))


def _draw_points(
    axes: "Axes",
    points: Sequence[TradePoint],
    colour: str,
    label: str,
    *,
    linestyle: str,
) -> None:
    """Draw models with the intervals of their losses, where these are known."""
    losses = np.array([point.loss_points for point in points])
    limits = [point.interval_points or (point.loss_points,) * 2 for point in points]
    low, high = np.transpose(limits)
    axes.errorbar(
        [point.images_per_s for point in points],
        losses,
        yerr=np.maximum([losses - low, high - losses], 0.0),
        color=colour,
        label=label,
        linestyle=linestyle,
        marker="o",
        markersize=5,
        linewidth=1.4,
        elinewidth=0.9,
        capsize=2.5,
    )


def _annotate(
    axes: "Axes",
    named: Sequence[tuple[str, float, float]],
    offset: tuple[float, float] = (6, 6),
) -> None:
    """Write a name beside each point (name, x, y), in turns above and below, since neighbours may be close."""
    for at, (name, x, y) in enumerate(named):
        place = offset if at % 2 == 0 else (offset[0], -2 * offset[1])
        axes.annotate(
            name,
            (x, y),
            fontsize=7.5,
            xytext=place,
            textcoords="offset points",
        )


def chart_of(trade_off: TradeOff, model: str) -> Chart:
    """Draw the accuracy of models against their speed."""
    caption = (
        f"Loss on {trade_off.images} images, speed at batch {trade_off.batch}; each model ran in turns with the "
        "unpruned one. Bars are 95 % intervals. Right and up is better."
    )
    light, dark = (
        data_address("image/png", trade_off_chart(trade_off, model, style))
        for style in (LIGHT, DARK)
    )
    return Chart(caption, light=light, dark=dark)


def data_address(kind: str, content: bytes) -> str:
    """Return the data URI of a file's bytes; `kind` is its MIME type."""
    return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"
