"""The help of a command reads top down, and a usage error is one line."""

from pathlib import Path

import pytest

from exporter.settings import Parser


def test_paragraphs_are_wrapped_and_examples_are_not() -> None:
    parser = Parser(prog="p", description="word " * 40)
    example = "p --flag " + "x" * 200
    parser.explain([example, "p"], "it does not hold")
    shown = parser.format_help()
    assert f"\n  {example}\n  p\n" in shown
    assert all(len(line) < 200 for line in shown.splitlines() if "word" in line)
    assert shown.endswith(
        "exit codes:\n\n  0    done\n  1    it does not hold\n"
        "  2    an error that you can fix: one line names the setting or file, what was given, and what is needed\n"
        "  130  interrupted\n"
        "  141  the program that reads stdout ended first\n"
    )


def test_the_usage_names_what_is_needed() -> None:
    parser = Parser(prog="p")
    parser.add_argument("folder")
    parser.add_argument("second", nargs="?")
    parser.add_argument("-o", "--out", required=True, metavar="FILE")
    parser.add_argument("--rho", metavar="X")
    assert parser.format_help().startswith("usage: p folder [second] --out FILE [options]\n")


def test_the_advanced_flags_come_last() -> None:
    parser = Parser(prog="p")
    parser.group("advanced").add_argument("--seed")
    parser.add_argument_group("of a verb's own").add_argument("--pin")
    shown = parser.format_help()
    assert shown.index("--pin") < shown.index("advanced:") < shown.rindex("--seed")


@pytest.mark.parametrize("text", ["x" * 256, "x/" * 2048, "a\0b"])
def test_a_path_that_no_file_system_takes_is_a_usage_error(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = Parser(prog="p")
    parser.add_argument("--out", type=Path)
    assert parser.parse_args(["--out", "a/b"]).out == Path("a/b")
    with pytest.raises(SystemExit):
        parser.parse_args(["--out", text])
    (line,) = capsys.readouterr().err.splitlines()
    assert "--out: got" in line
    assert "names of at most 255 bytes" in line
    assert len(line) < 250


def test_a_usage_error_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        Parser(prog="p").parse_args(["--wings"])
    assert caught.value.code == 2
    assert capsys.readouterr().err == "error: unrecognized arguments: --wings | see p --help\n"
