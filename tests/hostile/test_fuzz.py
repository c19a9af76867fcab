"""A short run of the fuzzer: no random input is answered wrongly, and the same seed makes the same inputs."""

import itertools
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from exporter.cli import models
from exporter.cli.main import build_parser
from tests.commands import Workplace
from tests.hostile.fuzz import Failure, answer, fuzz
from tests.hostile.fuzz_inputs import COMMANDS, Input, input_of, subparsers
from tests.hostile.inputs import Place
from tests.hostile.limits import limited

SECONDS = 6.0


@pytest.fixture
def place(workplace: Workplace, calibration: Path, compiled: Callable[..., Path], tmp_path: Path) -> Place:
    folder, work = compiled(), tmp_path / "work"
    work.mkdir()
    dense, pruned = (next(folder.glob(f"*.{name}.onnxruntime-fp32.onnx")) for name in ("dense", "star"))
    others = (compiled("--method", "a-star"), compiled("--target", "openvino-int8"))
    return Place(work, workplace.checkpoint, workplace.images, calibration, folder, dense, pruned, others)


@pytest.mark.ort
def test_no_random_input_is_answered_wrongly(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    found = list(fuzz(place, 0, itertools.count(), SECONDS))
    assert not list(elsewhere.iterdir())  # a random path may be relative
    assert len(found) > 3
    assert not any(found), "\n".join(str(each) for each in found if each)


def test_the_flags_of_every_verb_and_action_are_changed() -> None:
    (verbs,) = subparsers(build_parser())
    every = {
        f"{verb} {action}".strip()
        for verb, parser in verbs.items()
        for action in next(subparsers(parser), {"": parser})
    }
    changed = {tuple(command.split()[:2]) for command in COMMANDS}
    assert {f"{verb} {word}" if f"{verb} {word}" in every else verb for verb, word in changed} == every


def test_a_seed_makes_the_same_inputs(place: Place) -> None:
    def made(name: str, index: int) -> tuple[Input, dict[str, bytes]]:
        work = place.work / name / str(index)
        work.mkdir(parents=True)
        made = input_of(Random(f"5/{index}"), replace(place, work=work))
        words = tuple(word.replace(str(work), "") for word in made.words)
        files = {str(each.relative_to(work)): each.read_bytes() for each in work.rglob("*") if each.is_file()}
        # An .npz has the time of its making in it; JSON and TOML name the folder.
        return replace(made, words=words), {
            name: content.replace(str(work).encode(), b"")
            for name, content in files.items()
            if not name.endswith((".npz", "SHA256SUMS"))
        }

    assert [made("first", index) for index in range(30)] == [made("second", index) for index in range(30)]


def _sleep(*_: object) -> int:
    time.sleep(5)
    return 0


def _leave(*_: object) -> int:
    Path("left").touch()
    sys.stderr.write("error: it cannot be done\n")
    return 2


def _raise(*_: object) -> int:
    raise ZeroDivisionError


@pytest.mark.parametrize(
    ("run", "code", "why"),
    [
        (_leave, None, "changed: ['left']"),
        (lambda _: 0, None, ""),
        (lambda _: 0, 2, "exit code 0, expected 2"),
        (lambda _: 3, None, "exit code 3"),
        (lambda _: 2, None, "exit code 2 with 0 lines of errors"),
        (_raise, None, "ZeroDivisionError"),
        (_sleep, None, "no answer in 0.5 s"),
    ],
)
def test_a_wrong_answer_is_told(
    run: Callable[[object], int],
    code: int | None,
    why: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(models, "run", run)
    monkeypatch.setattr("tests.hostile.fuzz.limited", lambda: limited(most_s=0.5))
    none = tmp_path / "none"
    told = answer(Input(("models",), code), Place(Path(), none, none, none, none, none, none))
    assert why in told
    assert bool(told) == bool(why)


def test_a_failure_says_how_to_repeat_it() -> None:
    told = str(Failure(3, 17, ("models", "--why", "a b"), "no answer"))
    assert told.splitlines()[0] == "python -m tests.hostile.fuzz --seed 3 --only 17"
    assert "star-export models --why 'a b'" in told
