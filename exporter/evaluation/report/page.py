"""The report as one HTML file that needs nothing beside it."""

from collections.abc import Sequence
from pathlib import Path

import jinja2

from exporter.evaluation.parity import explain
from exporter.evaluation.report.pictures import Strip
from exporter.evaluation.report.record import Report
from exporter.files import written_beside

__all__ = ["save_page"]


def save_page(report: Report, strips: Sequence[Strip], path: Path, chart: str = "") -> None:
    """Write the page beside `path` and rename it.

    Args:
        report: What it says.
        strips: Images and what is kept of them.
        path: Where it goes.
        chart: Address of the picture of `report.sweep`, "" where there is none.

    Raises:
        OutputError: The place cannot be written.
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
