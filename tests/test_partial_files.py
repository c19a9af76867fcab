"""What a killed process left is removed when the same file is written again; what may be in use is not."""

import subprocess
import sys
from pathlib import Path

from exporter.files import partial_of, remove_left, written_beside

LEAVE = "import os, pathlib, sys; from exporter.files import partial_of"
LEAVE += "; partial_of(pathlib.Path(sys.argv[1])).touch(); os.kill(os.getpid(), 9)"


def test_what_a_killed_process_left_goes_when_the_file_is_written_again(tmp_path: Path) -> None:
    target, other = tmp_path / "w[1].safetensors", tmp_path / "other"
    for path in (target, other):
        subprocess.run([sys.executable, "-c", LEAVE, path], check=False)
    assert [len(list(tmp_path.glob(f".{name}*.partial"))) for name in ("w", "other")] == [1, 1]
    with written_beside(target) as partial:
        partial.write_text("new")
    assert target.read_text() == "new"
    assert [len(list(tmp_path.glob(f".{name}*.partial"))) for name in ("w", "other")] == [0, 1]


def test_files_of_living_processes_and_of_other_machines_stay(tmp_path: Path) -> None:
    target = tmp_path / "w"
    own = partial_of(target)
    where = own.name.split(".")[2].split("-")[0]
    # Process 1 is alive; nobody knows whether process 999999999 of another machine is; the last one has no number.
    names = [own.name, f".w.{where}-1.partial", ".w.00000000-999999999.partial", f".w.{where}-x.partial"]
    dead = f".w.{where}-999999999.partial"
    for name in (*names, dead):
        (tmp_path / name).touch()
    remove_left(target)
    assert {path.name for path in tmp_path.iterdir()} == set(names)


def test_a_folder_that_is_not_there_has_nothing_left(tmp_path: Path) -> None:
    remove_left(tmp_path / "none" / "w")
