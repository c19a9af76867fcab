"""Draw figures 3 and 4 of the STAR paper from our numbers, with the printed ones where the paper has them."""

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import groupby
from pathlib import Path

import matplotlib as mpl
from columns import kept_shares, rates
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from measure import Lab
from star import A_STAR, DEIT_B, TABLES, TOME
from tables import Row, Way

from exporter.core.base.files import written_beside

RHOS = (0.9, 0.8, 0.7, 0.6)
RHO_OF_4C = 0.75


def draw(
    name: str, lab: Lab, path: Path, models: Collection[str] | None = None
) -> None:
    """Draw a figure as PNG, of these models or of all; what could not be measured is left out."""
    mpl.use("Agg")
    figure = FIGURES[name](lab, models)
    with written_beside(path) as partial:
        figure.savefig(
            partial,
            format="png",
            dpi=150,
            bbox_inches="tight",
            metadata={"Software": None},
        )


def _figure_3(lab: Lab, models: Collection[str] | None) -> Figure:
    figure = Figure(figsize=(10, 4), layout="constrained")
    printed, ours = figure.subplots(1, 2)
    rows = [
        row
        for row in TABLES["star-1"].rows
        if row.way not in (None, TOME) and (not models or row.model in models)
    ]
    for model, group in groupby(rows, key=lambda row: row.model):
        mine = list(group)
        _line(printed, model, [(row.printed[4], row.printed[0]) for row in mine])
        _line(ours, model, _measured(lab, mine, ("img/s", "top-1")))
    for axes, title in ((printed, "printed (A100)"), (ours, "ours")):
        axes.set(title=title, xlabel="images/s", ylabel="top-1, %")
    printed.legend(fontsize=7)
    return figure


def _figure_4(lab: Lab, _: Collection[str] | None) -> Figure:
    """Draw the three panels, all of DeiT-Base."""
    figure = Figure(figsize=(15, 4), layout="constrained")
    by_rate, by_rho, by_share = figure.subplots(1, 3)
    by_way = {f"ρ {rho:g}": lab.measured(DEIT_B, Way(rho=rho), rates) for rho in RHOS}
    _by_layer(by_rate, "(a) retention rate", by_way)
    _by_rho(by_rho, lab)
    ways = {"STAR": "star", "a-STAR": A_STAR}
    by_way = {
        name: lab.measured(DEIT_B, Way(way, RHO_OF_4C), kept_shares)
        for name, way in ways.items()
    }
    _by_layer(by_share, f"(c) share kept, ρ {RHO_OF_4C:g}", by_way)
    return figure


def _by_layer(
    axes: Axes, title: str, lines: Mapping[str, Sequence[float] | None]
) -> None:
    for label, values in lines.items():
        _line(axes, label, list(enumerate(values or (), start=1)))
    axes.set(title=title, xlabel="layer")
    if axes.lines:
        axes.legend(fontsize=7)


def _by_rho(axes: Axes, lab: Lab) -> None:
    rows = [row for row in TABLES["star-4"].rows if row.model == DEIT_B]
    _line(axes, "printed", [(row.printed[0], row.printed[1]) for row in rows])
    _line(axes, "ours", _measured(lab, rows, ("GFLOPs", "top-1")))
    axes.set(title="(b) by ρ", xlabel="GFLOPs", ylabel="top-1, %")
    axes.legend(fontsize=7)


Points = Sequence[tuple[float | None, float | None]]


def _measured(lab: Lab, rows: Sequence[Row], columns: tuple[str, str]) -> Points:
    results = [lab.numbers(row.model, row.way, columns) for row in rows if row.way]
    return [(each[columns[0]], each[columns[1]]) for each in results]


def _line(axes: Axes, label: str, points: Points) -> None:
    whole = [(x, y) for x, y in points if x is not None and y is not None]
    if whole:
        axes.plot(*zip(*whole, strict=True), marker="o", label=label)


FIGURES: Mapping[str, Callable[[Lab, Collection[str] | None], Figure]] = {
    "star-figure-3": _figure_3,
    "star-figure-4": _figure_4,
}
