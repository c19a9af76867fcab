"""Run steps one after another, each in its own process, and save how each ended, so that a later call goes on.

report.md has how each step ended, and below it every table, or why there is none.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from steps import Step

from exporter.core.base.canonical_json import load_json, save_json
from exporter.core.base.files import written_beside

ROOT = Path(__file__).parents[2]
DONE = "done"
FAILED = "failed"
INTERRUPTED = "interrupted"
WAITING = "waiting"
NOT_RUN = "not run"
RAN, UNFINISHED = (DONE, FAILED, INTERRUPTED), (FAILED, INTERRUPTED, WAITING)
# A stopped step has this long to end by itself.
GRACE_S = 5.0
REFUSED = (
    2  # the exit code of a command that cannot run here, which says why in one line
)

Clock: TypeAlias = Callable[[], float]


@dataclass(frozen=True)
class Outcome:
    """How a step ended, its time in seconds over all calls, and why it did not run or did not end well."""

    state: str
    seconds: float
    reason: str
    command: tuple[str, ...]


def run_steps(
    chosen: Iterable[Step],
    out: Path,
    *,
    limit_s: float,
    again: bool,
    tell: Callable[[], None],
    clock: Clock = time.monotonic,
) -> None:
    """Run the steps that have not been done; after a step that fails the next ones still run.

    `out` gets each step's output, NAME.out and NAME.err, and its outcome, NAME.json. The step that runs at the
    end of `limit_s` is stopped, and the next call continues it. `again` runs those that are done, too. `tell`
    is called after each step, and before a step that may be killed with this process.
    """
    end = clock() + limit_s
    for step in chosen:
        before = outcome_of(step, out)
        left_s = end - clock() - GRACE_S
        if step.lacks or (before.state == DONE and not again) or left_s <= 0:
            continue
        spent_s = before.seconds if before.state == INTERRUPTED else 0.0
        # Until it ends: this process may be killed.
        _save(
            Outcome(INTERRUPTED, spent_s, "the call ended before it did", step.command),
            step,
            out,
        )
        tell()
        _save(_run(step, out, spent_s, left_s, clock), step, out)
        tell()


def outcome_of(step: Step, out: Path) -> Outcome:
    """Read how a step ended; one of another command does not count."""
    path = out / f"{step.name}.json"
    if step.lacks:
        return Outcome(NOT_RUN, 0.0, f"needs {step.lacks}", step.command)
    outcome = load_json(Outcome, path) if path.is_file() else None
    if outcome is None or outcome.command != step.command:
        return Outcome(WAITING, 0.0, "no call has come to it yet", step.command)
    return outcome


def printed_by(step: Step, out: Path, suffix: str = "out") -> str:
    """Return what a step printed; "" where it has not run."""
    path = out / f"{step.name}.{suffix}"
    if path.is_file():
        return path.read_text(encoding="utf-8", errors="replace").strip()
    return ""


def _save(outcome: Outcome, step: Step, out: Path) -> None:
    save_json(outcome, out / f"{step.name}.json")


def _run(step: Step, out: Path, spent_s: float, left_s: float, clock: Clock) -> Outcome:
    start = clock()
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    with (
        (out / f"{step.name}.out").open("w") as printed,
        (out / f"{step.name}.err").open("w") as errors,
    ):
        try:
            process = subprocess.Popen(
                step.command,
                cwd=ROOT,
                env=environment,
                stdout=printed,
                stderr=errors,
                start_new_session=True,
            )
        except OSError as error:
            return Outcome(
                NOT_RUN, 0.0, f"{step.command[0]}: {error.strerror}", step.command
            )
        code = _wait(process, left_s)
    seconds = round(spent_s + clock() - start, 1)
    if code is None:
        return Outcome(
            INTERRUPTED,
            seconds,
            "its time was up; the next call continues it",
            step.command,
        )
    lines = printed_by(step, out, "err").splitlines() or [f"exit code {code}"]
    why = lines[-1].removeprefix("error: ")
    if code == REFUSED:
        return Outcome(NOT_RUN, seconds, why, step.command)
    return Outcome(FAILED if code else DONE, seconds, why if code else "", step.command)


def _wait(process: subprocess.Popen[bytes], left_s: float) -> int | None:
    """Return the exit code; stop the process and its children, and return None, where it takes longer."""
    try:
        return process.wait(left_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        pass
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return None


REPORT = "report.md"


def write_report(all_steps: Iterable[Step], out: Path, machine: str) -> None:
    """Write the report of all steps, run or not."""
    all_steps = tuple(all_steps)
    with written_beside(out / REPORT) as partial:
        sections = "\n".join(line for step in all_steps for line in _lines(step, out))
        partial.write_text(
            f"# {machine}\n\n{summary(all_steps, out)}\n\n{sections}", encoding="utf-8"
        )


def summary(all_steps: Iterable[Step], out: Path) -> str:
    """Return the table of steps: state, seconds, and why it is not done."""
    rows = ["| step | state | seconds | |", "|---|---|---|---|"]
    for step in all_steps:
        outcome = outcome_of(step, out)
        seconds = f"{outcome.seconds:.0f}" if outcome.state in RAN else ""
        rows.append(
            f"| {step.name} | {outcome.state} | {seconds} | {outcome.reason.replace('|', '·')} |"
        )
    return "\n".join(rows)


def _lines(step: Step, out: Path) -> Iterator[str]:
    outcome = outcome_of(step, out)
    yield f"## {step.name}: {step.shows}\n"
    if outcome.reason:
        yield f"{outcome.state.capitalize()}: {outcome.reason}\n"
    if outcome.state in RAN:
        yield f"{_table_of(printed_by(step, out)) or 'It printed nothing.'}\n"


def _table_of(printed: str) -> str:
    """Return Markdown as it is, and other text as a block."""
    return printed if "\n|---" in printed else f"```\n{printed}\n```" if printed else ""
