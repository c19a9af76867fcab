"""`star-export VERB`: from a verb and flags to an exit code, and to one line where a user can mend it."""

import argparse
import logging
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

import exporter
from exporter.cli import inspect
from exporter.cli.main import VERBS, build_parser, main, verb_module
from exporter.core.base.errors import RecipeError
from tests.commands import Command, Workplace, succeeded


def parsers_of(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The parser, and those of its verbs and their actions."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for choice in action.choices.values():
                yield from parsers_of(choice)


PARSERS = tuple(parsers_of(build_parser()))


def heads_of(text: str) -> list[str]:
    return [
        line[:-1]
        for line in text.splitlines()
        if line.endswith(":") and not line.startswith(" ")
    ]


@pytest.mark.parametrize(
    "verb", ["compile", "calibrate", "plan", "export", "check", "eval", "finetune"]
)
def test_a_setting_without_a_flag_is_answered_with_how_to_set_it(
    star_export: Command, verb: str
) -> None:
    needed = {"plan": (), "check": (), "eval": ("--images", "x")}.get(
        verb, ("--out", "x")
    )
    for flag, way in (
        ("--alpha", "--set prune.alpha=…"),
        ("--no-recalibrate", "--set model.recalibrate=…"),
    ):
        line = f"error: {flag} | got no flag of this verb | need {way}"
        assert star_export(verb, *needed, flag, "1").error.startswith(line)


def test_the_flag_that_was_meant_is_named(star_export: Command) -> None:
    """Of one that a verb has for other images, and of the first part of one, which is no flag."""
    line = star_export("eval", "x", "--images", "y", "--max-images", "9").error
    assert "--max-images | got no flag of this verb" in line
    assert "nearest: --max-eval-images" in line
    assert (
        "nearest: --images"
        in star_export("eval", "--image", "x", "--images", "x").error
    )


def test_so_is_one_of_training_where_a_verb_trains(star_export: Command) -> None:
    way = "--ema-decay | got no flag of this verb | need --set training.ema_decay=…"
    assert way in star_export("finetune", "--out", "x", "--ema-decay", "1").error
    assert (
        "unrecognized arguments"
        in star_export("compile", "--out", "x", "--ema-decay", "1").error
    )


def test_help_ends_with_the_advanced_flags_and_the_exit_codes(
    star_export: Command,
) -> None:
    shown = star_export("compile", "--help").out
    wanted = [
        "model",
        "images",
        "how much to prune",
        "how to prune",
        "target",
        "measurement",
    ]
    assert heads_of(shown) == ["Examples", "options", *wanted, "exit codes"]
    assert shown.startswith("usage: star-export compile --out DIR [options]\n")
    shown = star_export("bench", "--help").out
    assert shown.index("--batches") < shown.index("advanced:") < shown.index("--warmup")


@pytest.mark.parametrize("parser", PARSERS, ids=lambda parser: parser.prog)
def test_a_help_names_flags_that_the_command_has(
    parser: argparse.ArgumentParser,
) -> None:
    known = {name for action in parser._actions for name in action.option_strings}
    for action in parser._actions:
        # A flag of another command stands in quotes beside it; trtexec's have capital letters.
        text = re.sub(r"`[^`]* [^`]*`", "", str(action.help))
        assert set(re.findall(r"--[a-z-]+\b(?![A-Z])", text)) <= known, (
            action.option_strings
        )


def test_exit_codes_are_documented(star_export: Command) -> None:
    for verb in ("check", "compile", "models", "tune"):
        assert "\n  1    " in star_export(verb, "--help").out
    shown = star_export("plan", "--help").out
    assert "\n  1    " not in shown
    for code in ("0    done", "2    an error", "130  interrupted"):
        assert f"\n  {code}" in shown


@pytest.mark.parametrize(
    "example", [example for verb in VERBS for example in verb_module(verb).EXAMPLES]
)
def test_an_example_is_a_command(example: str) -> None:
    program, *words = shlex.split(example)
    arguments = build_parser().parse_args(words)
    assert (program, arguments.verb) == ("star-export", words[0])


def raising(error: BaseException) -> Callable[[object], int]:
    def run(arguments: object) -> int:
        raise error

    return run


def test_what_a_user_can_mend_is_one_line(
    star_export: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = RecipeError("rho", "two\nlines", "one")
    monkeypatch.setattr(inspect, "run", raising(error))
    done = star_export("inspect", "x")
    assert done.code == 2
    assert "two lines" in done.error


def test_a_library_of_the_export_machine_is_named(
    star_export: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = ModuleNotFoundError("No module named 'torch.nn'", name="torch.nn")
    monkeypatch.setattr(inspect, "run", raising(missing))
    done = star_export("inspect", "x")
    assert done.code == 2
    assert "torch" in done.error
    assert "export" in done.error


def test_any_other_error_keeps_its_trace(
    star_export: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    for error in (
        ModuleNotFoundError("No module named 'ours'", name="ours"),
        ZeroDivisionError(),
    ):
        monkeypatch.setattr(inspect, "run", raising(error))
        with pytest.raises(type(error)):
            star_export("inspect", "x")


def test_an_interruption_is_130(
    star_export: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspect, "run", raising(KeyboardInterrupt()))
    done = star_export("inspect", "x")
    assert (done.code, done.out, len(done.err.splitlines())) == (130, "", 1)


@pytest.mark.parametrize(
    ("flags", "steps", "warnings"),
    [
        ([], 0, 1),
        (["--verbose"], 1, 1),
        (["-v"], 1, 1),
        (["--quiet"], 0, 0),
        (["-q"], 0, 0),
    ],
)
def test_steps_are_logged_where_that_is_asked_for(
    star_export: Command,
    monkeypatch: pytest.MonkeyPatch,
    flags: list[str],
    steps: int,
    warnings: int,
) -> None:
    def run(arguments: object) -> int:
        logging.getLogger("exporter").debug("a step")
        logging.getLogger("exporter").warning("a warning")
        return 1

    monkeypatch.setattr(inspect, "run", run)
    done = star_export("inspect", "x", *flags)
    assert done.code == 1
    assert (done.err.count("a step"), done.err.count("a warning")) == (steps, warnings)


def test_a_line_is_said_once(
    star_export: Command, workplace: Workplace, image_folder: Path
) -> None:
    """The images to train on are here those to measure on."""
    (image_folder / "notes.txt").touch()
    images = ("--images", image_folder, "--eval-images", image_folder)
    out = ("--rho", 0.7, "--out", image_folder.parent / "w.safetensors", "--dry-run")
    done = succeeded(star_export("finetune", *workplace.model, *images, *out))
    lines = done.err.splitlines()
    assert f"WARNING: {image_folder}: files left out by their ending: 1 .txt" in lines
    assert len(lines) == len(set(lines))


ROOT = Path(exporter.__file__).parents[1]


def completions(line: str, folder: Path) -> list[str]:
    """What is offered behind the line."""
    # argcomplete writes to descriptor 8, and to a file where one is named.
    told = folder / "told"
    where = {"_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line))}
    environment = {**os.environ, **where, "_ARGCOMPLETE_STDOUT_FILENAME": str(told)}
    command = [sys.executable, "-c", "from exporter.cli.main import main; main()"]
    environment["PYTHONPATH"] = os.pathsep.join(
        [str(ROOT), os.environ.get("PYTHONPATH", "")]
    )
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    return sorted(told.read_text(encoding="utf-8").replace("\v", "\013").split("\013"))


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("star-export ser", {"serve-config "}),
        ("star-export compile --method a", {"a-star"}),
        ("star-export compile --max-", {"--max-images", "--max-eval-images"}),
        ("star-export models --why digits", {"digits_vit "}),
        (
            "star-export compile --model deit_small_dist",
            {"deit_small_distilled_patch16_224 "},
        ),
    ],
)
def test_what_is_offered(line: str, offered: set[str], tmp_path: Path) -> None:
    pytest.importorskip("argcomplete")
    assert {completion.strip() for completion in completions(line, tmp_path)} == {
        each.strip() for each in offered
    }


def test_without_the_library_the_extra_is_named(
    star_export: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_ARGCOMPLETE", "1")
    monkeypatch.setitem(sys.modules, "argcomplete", None)
    done = star_export("models")
    assert done.code == 2
    assert "star-export[completion]" in done.error


@pytest.mark.parametrize("words", [(), ("--model", "digits_vit", "--images", "photos")])
def test_without_a_command_one_is_shown(
    words: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "need compile --model NAME --images DIR" in line
