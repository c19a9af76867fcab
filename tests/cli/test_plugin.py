"""`star-export plugin`: the source in a folder, and the command that builds it."""

import errno
import shutil
import sys
from pathlib import Path

import pytest

from exporter.bundled import PLUGIN_SOURCE
from tests.commands import Command


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_source_is_written_and_the_command_printed(star_export: Command, tmp_path: Path) -> None:
    out = tmp_path / "plugin"
    done = star_export("plugin", "--out", out)
    assert (done.code, done.err) == (0, "")
    (command,) = done.out.splitlines()
    assert f"cmake -S {out} " in command
    assert (out / "CMakeLists.txt").is_file()
    assert files_below(out) == files_below(PLUGIN_SOURCE)


def test_json_names_the_folder(star_export: Command, tmp_path: Path) -> None:
    out = tmp_path / "plugin"
    printed = star_export("plugin", "--out", out, "--json").json
    assert printed["source"] == str(out)
    assert printed["command"] in star_export("plugin", "--out", out).out


def test_it_needs_no_rich(star_export: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("exporter.cli.output", "rich"):
        monkeypatch.setitem(sys.modules, name, None)
    assert star_export("plugin", "--out", tmp_path / "plugin").code == 0


def test_a_full_disk_leaves_nothing(
    star_export: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = iter(range(3))

    def copy(source: Path, copy: Path) -> None:
        if next(left, None) is None:
            raise OSError(errno.ENOSPC, "No space left on device")
        copy.write_bytes(source.read_bytes())

    monkeypatch.setattr(shutil, "copyfile", copy)
    done = star_export("plugin", "--out", tmp_path / "plugin")
    assert done.error == (
        f"error: {tmp_path}/plugin | got No space left on device | need a writable path with free space"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written(star_export: Command, tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    done = star_export("plugin", "--out", tmp_path / "taken")
    assert done.code == 2
    assert "taken" in done.error
