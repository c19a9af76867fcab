"""Every hostile input is answered with one line and its exit code, soon, and leaves nothing behind."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands import Command, Workplace
from tests.hostile.files import FILES
from tests.hostile.flags import FLAGS
from tests.hostile.folders import FOLDERS
from tests.hostile.inputs import Hostile, Place, state_of
from tests.hostile.limits import limited
from tests.hostile.models import MODELS
from tests.hostile.ordinary import as_ordinary_user
from tests.hostile.permissions import PERMISSIONS

TABLE = (*FLAGS, *FILES, *MODELS, *FOLDERS, *PERMISSIONS)


@pytest.fixture
def place(
    workplace: Workplace,
    calibration: Path,
    compiled: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Place:
    folder, work, temporary = compiled(), tmp_path / "work", tmp_path / "temporary"
    work.mkdir()
    temporary.mkdir()
    monkeypatch.chdir(work)  # a path of an output may be relative
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    dense, pruned = (
        next(folder.glob(f"*.{name}.onnxruntime-fp32.onnx"))
        for name in ("dense", "star")
    )
    return Place(
        work, workplace.checkpoint, workplace.images, calibration, folder, dense, pruned
    )


@pytest.mark.parametrize(
    "hostile", TABLE, ids=[f"{index} {each.id}" for index, each in enumerate(TABLE)]
)
def test_it_is_answered_in_one_line(
    hostile: Hostile, place: Place, star_export: Command, tmp_path: Path
) -> None:
    if hostile.prepare is not None:
        hostile.prepare(place)
    read = (place.folder, place.images, place.weights.parent, place.calibration.parent)
    before = state_of(tmp_path, *read)
    with limited(), as_ordinary_user():
        done = star_export(*place.words(hostile.line))
    assert done.code == hostile.code, done.err
    lines = [line for line in done.err.splitlines() if line.startswith("error: ")]
    assert len(lines) == (hostile.code == 2)
    assert hostile.says in (lines[0] if lines else done.out)
    assert "Traceback" not in done.err and "[Errno" not in done.err
    assert state_of(tmp_path, *read) == before
