"""Write the report as one self-contained HTML file."""

from collections.abc import Sequence
from pathlib import Path

import jinja2

from exporter.evaluation.parity import explain
from exporter.evaluation.report.pictures import Strip
from exporter.evaluation.report.record import Report
from exporter.files import written_beside

__all__ = ["save_page"]


def save_page(report: Report, strips: Sequence[Strip], path: Path, chart: str = "") -> None:
    """Write the page atomically.

    Args:
        report: The record to show.
        strips: Pictures of images with their kept patches.
        path: Path of the HTML file.
        chart: Data URI of the chart of `report.sweep`, "" for none.

    Raises:
        OutputError: The path cannot be written.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    text = environment.get_template("page.html").render(
        report=report,
        strips=strips,
        chart=chart,
        results=[explain(report.parity), explain(report.dense_parity)],
        layers=list(enumerate(zip(report.schedule.rates, report.schedule.keep, strict=True), start=1)),
    )
    with written_beside(path) as partial:
        partial.write_text(text, encoding="utf-8")
