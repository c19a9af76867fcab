"""`star-export serve-config`: a Triton repository of a folder, and how it is loaded."""

from pathlib import Path

from tests.commands import Command
from tests.folders import write_folder


def test_the_models_and_the_command_are_printed(
    star_export: Command, tmp_path: Path
) -> None:
    folder, out = tmp_path / "folder", tmp_path / "models"
    write_folder(folder)
    flags = ("serve-config", folder, "--out", out, "--max-batch", "16")
    done = star_export(*flags)
    assert (done.code, done.err) == (0, "")
    *models, command = done.out.splitlines()
    assert len(models) == 2
    for model in map(Path, models):
        assert model.parent == out
        assert "max_batch_size: 16" in (model / "config.pbtxt").read_text()
    assert command.startswith("tritonserver ") and str(out) in command
    told = star_export(*flags, "--json").json
    assert (told["models"], told["command"]) == (models, command)
