"""Results go to stdout: whole, as tables or JSON. Progress goes to stderr: bars on a terminal, lines elsewhere."""

import json
import time
from dataclasses import dataclass

import pytest
from rich.console import Console
from rich.progress import Progress

from exporter.cli.output import (
    WIDEST,
    RichStages,
    print_json,
    print_lines,
    print_table,
    progress_line,
)


@dataclass(frozen=True)
class Numbers:
    """A record to print."""

    name: str
    counts: tuple[int, ...]


def test_json_of_a_record(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"b": Numbers("größer ×", (1, 2)), "a": None})
    out, err = capsys.readouterr()
    assert json.loads(out) == {"a": None, "b": {"name": "größer ×", "counts": [1, 2]}}
    assert out.index('"a"') < out.index('"b"')
    assert "größer ×" in out  # as it is, not escaped
    assert err == ""


def test_lines(capsys: pytest.CaptureFixture[str]) -> None:
    print_lines(f"line {number}, [bold]" for number in (1, 2))
    assert capsys.readouterr() == ("line 1, [bold]\nline 2, [bold]\n", "")


def test_a_table_has_its_title_and_every_cell(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_table("Two rows", ("layer", "kept"), [(1, 16), ("second", "x")])
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0] == "Two rows"
    cells = [
        [cell for cell in line.replace("┃", "│").split("│") if cell]
        for line in lines
        if "│" in line
    ]
    assert [[cell.strip() for cell in row] for row in cells] == [
        ["1", "16"],
        ["second", "x"],
    ]
    # numbers are aligned right, but for the first column
    assert cells[0] == [" 1      ", "   16 "]
    assert "layer" in out and "kept" in out
    assert err == ""


@pytest.mark.parametrize("width", [2, 3, 12])
def test_a_table_is_whole_and_never_wider_than_80_columns(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    columns = [f"quartiles of column {index}" for index in range(width)]
    cells = [f"{index} to {index + 1} images/s" for index in range(width)]
    print_table("Rows", columns, [cells, ["", *cells[1:]]])
    out = capsys.readouterr().out
    assert "…" not in out and max(map(len, out.splitlines())) <= WIDEST
    for column in columns[1:]:
        assert column in out
    for cell in cells[1:]:
        assert out.count(cell) == 2


def test_quiet_stages_say_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("exporter.cli.output.FIRST_S", 0.001)
    with RichStages(quiet=True).stage("calibration"):
        time.sleep(0.02)
    assert capsys.readouterr() == ("", "")


def test_a_stage_without_a_terminal_tells_how_long_it_has_taken(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that reports no progress of its own; a long name is not broken into lines."""
    monkeypatch.setattr("exporter.cli.output.FIRST_S", 0.01)
    name = "lowering " + "x" * 100
    with RichStages().stage(name):
        time.sleep(0.2)
    first, last = capsys.readouterr().err.splitlines()
    assert first == f"{name}: 0:00:00 so far"
    assert last.startswith(f"✓ {name}, 0.")


def test_the_line_of_a_stage_says_how_far_it_is_and_how_long_it_may_take() -> None:
    now = [0.0]
    progress = Progress(
        console=Console(get_time=lambda: now[0]), disable=True, get_time=lambda: now[0]
    )
    task = progress.add_task("calibration", total=None)
    shown = progress.tasks[task]
    assert progress_line(shown, 31.4) == "calibration: 0:00:31 so far"
    for done in range(4):
        now[0] = 20.0 * done
        progress.update(task, completed=done, total=512)
    assert (
        progress_line(shown, 60)
        == "calibration: 3 of 512, 0:01:00 so far, about 2:49:40 left"
    )
    progress.update(task, total=None)
    shown.total = None
    assert progress_line(shown, 60).startswith("calibration: 3 done, ")


def test_a_stage_that_fails_is_not_said_to_be_done(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(ZeroDivisionError), RichStages().stage("calibration"):
        raise ZeroDivisionError
    assert "✓" not in capsys.readouterr().err
