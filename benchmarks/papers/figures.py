"""Draw figures 3 and 4 of the STAR paper from our numbers, with the printed ones where the paper has them."""

from collections.abc import Callable, Collection, Mapping
from itertools import groupby
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from measure import Lab
from star import A_STAR, DEIT_B, TABLES
from tables import Way

from exporter.files import written_beside

__all__ = ["FIGURES", "draw"]

RHOS = (0.9, 0.8, 0.7, 0.6)
RHO_OF_4C = 0.75


def draw(name: str, lab: Lab, path: Path, models: Collection[str] | None = None) -> None:
    """Draw a figure as PNG, of these models or of all; what could not be measured is left out."""
    mpl.use("Agg")
    figure = FIGURES[name](lab, models)
    with written_beside(path) as partial:
        figure.savefig(partial, format="png", dpi=150, bbox_inches="tight", metadata={"Software": None})


def _figure_3(lab: Lab, models: Collection[str] | None) -> Figure:
    """Draw top-1 against throughput: printed and ours."""
    figure = Figure(figsize=(10, 4))
    printed, ours = figure.subplots(1, 2)
    every = [row for row in TABLES["star-1"].rows if row.way is not None]
    rows = [row for row in every if not models or row.model in models]
    for model, group in groupby(rows, key=lambda row: row.model):
        mine = list(group)
        _line(printed, model, [(row.printed[4], row.printed[0]) for row in mine])
        found = [lab.numbers(model, row.way, ("img/s", "top-1")) for row in mine if row.way]
        _line(ours, model, [(each["img/s"], each["top-1"]) for each in found])
    for axes, title in ((printed, "printed (A100)"), (ours, "ours")):
        axes.set(title=title, xlabel="images/s", ylabel="top-1, %")
    printed.legend(fontsize=7)
    return figure


def _figure_4(lab: Lab, _: Collection[str] | None) -> Figure:
    """Draw rates by layer, GFLOPs and top-1 by rho, and the shares that STAR and a-STAR keep, of DeiT-Base."""
    figure = Figure(figsize=(15, 4))
    rates, by_rho, kept = figure.subplots(1, 3)
    for rho in RHOS:
        values = lab.rates(DEIT_B, Way(rho=rho))
        rates.plot(range(1, len(values) + 1), values, marker="o", label=f"ρ {rho:g}")
    rates.set(title="(a) retention rate", xlabel="layer")
    rates.legend(fontsize=7)
    rows = [row for row in TABLES["star-4"].rows if row.model == DEIT_B]
    found = [(row, lab.numbers(DEIT_B, row.way, ("GFLOPs", "top-1"))) for row in rows if row.way]
    _line(by_rho, "printed", [(row.printed[0], row.printed[1]) for row, _ in found])
    _line(by_rho, "ours", [(each["GFLOPs"], each["top-1"]) for _, each in found])
    by_rho.set(title="(b) by ρ", xlabel="GFLOPs", ylabel="top-1, %")
    by_rho.legend(fontsize=7)
    for label, method in (("STAR", "star"), ("a-STAR", A_STAR)):
        values = lab.kept_shares(DEIT_B, Way(method, RHO_OF_4C))
        kept.plot(range(1, len(values) + 1), values, marker="o", label=label)
    kept.set(title=f"(c) share kept, ρ {RHO_OF_4C:g}", xlabel="layer")
    kept.legend(fontsize=7)
    return figure


def _line(axes: Axes, label: str, points: list[tuple[float | None, float | None]]) -> None:
    whole = [(x, y) for x, y in points if x is not None and y is not None]
    if whole:
        axes.plot(*zip(*whole, strict=True), marker="o", label=label)


FIGURES: Mapping[str, Callable[[Lab, Collection[str] | None], Figure]] = {
    "star-figure-3": _figure_3,
    "star-figure-4": _figure_4,
}
