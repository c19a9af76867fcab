"""`star-export serve-config`: a Triton repository of a folder, and how it is loaded."""

from pathlib import Path

import pytest

from tests.commands import Command
from tests.folders import write_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_folder(tmp_path / "folder")
    return tmp_path / "folder"


def test_the_models_and_the_command_are_printed(
    star_export: Command, folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "models"
    done = star_export("serve-config", folder, "--out", out, "--max-batch", "16")
    assert (done.code, done.err) == (0, "")
    *models, command = done.out.splitlines()
    assert len(models) == 2
    for model in map(Path, models):
        assert model.parent == out
        assert "max_batch_size: 16" in (model / "config.pbtxt").read_text()
    assert command.startswith("tritonserver ") and str(out) in command


def test_json_says_the_same(star_export: Command, folder: Path, tmp_path: Path) -> None:
    flags = ("serve-config", folder, "--out", tmp_path / "models")
    printed, shown = star_export(*flags, "--json").json, star_export(*flags).out
    assert shown.splitlines() == [*printed["models"], printed["command"]]
