"""Write report.md: how each step ended, and below it every table, or why there is none."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from run_steps import RAN, outcome_of, printed_by
from steps import Step

from exporter.files import written_beside

__all__ = ["REPORT", "summary", "write_report"]

REPORT = "report.md"


def write_report(all_steps: Iterable[Step], out: Path, machine: str) -> None:
    """Write the report of all steps, run or not."""
    all_steps = tuple(all_steps)
    with written_beside(out / REPORT) as partial:
        sections = "\n".join(_section(step, out) for step in all_steps)
        partial.write_text(f"# {machine}\n\n{summary(all_steps, out)}\n\n{sections}", encoding="utf-8")


def summary(all_steps: Iterable[Step], out: Path) -> str:
    """Return the table of steps: state, seconds, and why it is not done."""
    rows = ["| step | state | seconds | |", "|---|---|---|---|"]
    for step in all_steps:
        found = outcome_of(step, out)
        seconds = f"{found.seconds:.0f}" if found.state in RAN else ""
        rows.append(f"| {step.name} | {found.state} | {seconds} | {found.reason.replace('|', '·')} |")
    return "\n".join(rows)


def _section(step: Step, out: Path) -> str:
    return "\n".join(_lines(step, out))


def _lines(step: Step, out: Path) -> Iterator[str]:
    found = outcome_of(step, out)
    yield f"## {step.name}: {step.shows}\n"
    if found.reason:
        yield f"{found.state.capitalize()}: {found.reason}\n"
    if found.state in RAN:
        yield f"{_table_of(printed_by(step, out)) or 'It printed nothing.'}\n"


def _table_of(printed: str) -> str:
    """Return Markdown as it is, and other text as a block."""
    return printed if "\n|---" in printed else f"```\n{printed}\n```" if printed else ""
