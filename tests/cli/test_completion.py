"""Tab completion, as a shell asks for it: the command runs with its line in the environment."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import exporter
from tests.commands import Command

ROOT = Path(exporter.__file__).parents[1]


def completions(line: str, folder: Path) -> list[str]:
    """What is offered behind the line."""
    # argcomplete writes to descriptor 8, and to a file where one is named.
    told, where = folder / "told", {"_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line))}
    environment = {**os.environ, **where, "_ARGCOMPLETE_STDOUT_FILENAME": str(told), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", "from exporter.cli.main import main; main()"]
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    return sorted(told.read_text(encoding="utf-8").replace("\v", "\013").split("\013"))


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("star-export ser", {"serve-config "}),
        ("star-export compile --method a", {"a-star", "a-star-batch"}),
        ("star-export compile --max-", {"--max-images", "--max-eval-images"}),
        ("star-export models --why digits", {"digits_vit "}),
        ("star-export compile --model deit_small_dist", {"deit_small_distilled_patch16_224 "}),
    ],
)
def test_what_is_offered(line: str, offered: set[str], tmp_path: Path) -> None:
    pytest.importorskip("argcomplete")
    assert {each.strip() for each in completions(line, tmp_path)} == {each.strip() for each in offered}


def test_without_the_library_the_extra_is_named(
    star_export: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_ARGCOMPLETE", "1")
    monkeypatch.setitem(sys.modules, "argcomplete", None)
    done = star_export("models")
    assert done.code == 2
    assert "star-export[completion]" in done.error
