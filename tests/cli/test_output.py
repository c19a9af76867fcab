"""Results go to stdout: whole, as tables or JSON."""

import json
from dataclasses import dataclass

import pytest

from exporter.cli.output import percent_interval, print_json, print_lines, print_table


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


def test_a_table_is_whole_on_a_narrow_terminal_and_in_a_pipe(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    columns = [f"quartiles of column {index}" for index in range(12)]
    print_table("Wide", columns, [[f"{index} to {index + 1} images/s" for index in range(12)]])
    out = capsys.readouterr().out
    assert "…" not in out
    assert all(column in out for column in columns)
    assert all(f"{index} to {index + 1} images/s" in out for index in range(12))


def test_an_interval_is_in_percent() -> None:
    assert percent_interval((0.91234, 1.0)) == "91.23% to 100.00%"
