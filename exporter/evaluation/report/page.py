"""Write the report as one self-contained HTML file."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jinja2

from exporter.artefact import Artefact
from exporter.evaluation.proportions import wilson
from exporter.evaluation.report.checks_table import checks_table
from exporter.evaluation.report.pictures import Picture
from exporter.evaluation.report.record import Report
from exporter.evaluation.report.serving import serving_script
from exporter.files import written_beside

__all__ = ["Chart", "save_page"]


@dataclass(frozen=True)
class Chart:
    """A chart of the page: its title, what it shows in words, and the data URIs for light and dark screens."""

    title: str
    words: str
    light: str
    dark: str


def save_page(
    report: Report,
    artefact: Artefact,
    path: Path,
    *,
    pictures: Sequence[Picture] = (),
    chart: Chart | None = None,
) -> None:
    """Write the page atomically.

    Args:
        report: The record to show.
        artefact: What the pruned file says of itself.
        path: Path of the HTML file.
        pictures: The report's examples with their kept patches, in the same order.
        chart: Of the report's trade-off.

    Raises:
        OutputError: The path cannot be written.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(number=_number, percent=_percent, interval=_interval, megabytes=_megabytes)
    parities = {"pruned": report.parity, "dense": report.dense_parity}
    text = environment.get_template("page.html").render(
        report=report,
        artefact=artefact,
        pictures=list(zip(pictures, report.examples or [None] * len(pictures), strict=True)),
        chart=chart,
        checks={role: checks_table(parity) for role, parity in parities.items()},
        layers=list(enumerate(zip(report.schedule.rates, report.schedule.keep, strict=True), start=1)),
        script=serving_script(artefact, report.files["pruned"]),
        wilson=wilson,
    )
    with written_beside(path) as partial:
        partial.write_text(text, encoding="utf-8", errors="backslashreplace")


def _number(value: float, digits: int = 1) -> str:
    """Return a number with this many decimals, and a real minus sign."""
    return f"{value:,.{digits}f}".replace("-", "−")


def _percent(share: float, digits: int = 2) -> str:
    return f"{_number(100 * share, digits)} %"


def _interval(limits: tuple[float, float], digits: int = 2, scale: float = 1.0) -> str:
    low, high = (_number(scale * each, digits) for each in limits)
    return f"{low} to {high}"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
