"""Results go to stdout, progress to stderr."""

import json
from dataclasses import dataclass

import pytest

from exporter.cli.output import RichStages, percent_interval, print_json, print_lines, print_table


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


def test_a_table_has_its_title_and_every_cell(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("Two rows", ("layer", "kept"), [(1, 16), ("second", "x")])
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0] == "Two rows"
    cells = [[cell for cell in line.replace("┃", "│").split("│") if cell] for line in lines if "│" in line]
    assert [[cell.strip() for cell in row] for row in cells] == [["1", "16"], ["second", "x"]]
    assert cells[0] == [" 1      ", "   16 "]  # numbers are aligned right, but for the first column
    assert "layer" in out and "kept" in out
    assert err == ""


def test_a_stage_is_named_on_stderr_when_it_is_over(capsys: pytest.CaptureFixture[str]) -> None:
    with RichStages().stage("calibration") as advance:
        advance(1, 2)
        advance(2, 2)
        assert capsys.readouterr() == ("", "")
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert "calibration" in line
    assert line.startswith("✓")


def test_time_left_is_said_where_stderr_is_no_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line a minute, once two steps say how fast it goes: here 20 s each."""
    clock = iter(range(0, 2000, 20))
    now = [0.0]
    monkeypatch.setattr("exporter.cli.output.time.perf_counter", lambda: now[0])
    stages = RichStages()
    stages._console.get_time = lambda: now[0]
    with stages.stage("calibration") as advance:
        for done in range(9):
            now[0] = float(next(clock))
            advance(done, 512)
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == [
        "calibration: 3 of 512, 2:49:40 left",
        "calibration: 6 of 512, 2:48:40 left",
    ]
    assert lines[2].startswith("✓")


def test_a_stage_that_fails_is_not_said_to_be_done(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ZeroDivisionError), RichStages().stage("calibration"):
        raise ZeroDivisionError
    assert "✓" not in capsys.readouterr().err


def test_an_interval_is_in_percent() -> None:
    assert percent_interval((0.91234, 1.0)) == "91.23% to 100.00%"
