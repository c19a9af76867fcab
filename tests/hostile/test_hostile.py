"""Every hostile input is answered with one line and its exit code, and leaves nothing behind."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.commands import Command, Workplace
from tests.hostile.files import FILES
from tests.hostile.flags import FLAGS
from tests.hostile.folders import FOLDERS
from tests.hostile.inputs import Hostile, Place
from tests.hostile.models import MODELS

TABLE = (*FLAGS, *FILES, *MODELS, *FOLDERS)
# A hang fails. Inputs take a second or two; a busy machine may need more.
MOST_S = 120


@pytest.fixture
def place(workplace: Workplace, calibration: Path, compiled: Callable[..., Path], tmp_path: Path) -> Place:
    folder, work = compiled(), tmp_path / "work"
    work.mkdir()
    dense, pruned = (next(folder.glob(f"*.{name}.onnxruntime-fp32.onnx")) for name in ("dense", "star"))
    return Place(work, workplace.checkpoint, workplace.images, calibration, folder, dense, pruned)


@pytest.fixture(autouse=True)
def within_time() -> Iterator[None]:
    def fail(*_: object) -> None:
        pytest.fail(f"no answer in {MOST_S} s")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(MOST_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("hostile", TABLE, ids=[f"{index} {each.id}" for index, each in enumerate(TABLE)])
def test_it_is_answered_in_one_line(hostile: Hostile, place: Place, star_export: Command) -> None:
    if hostile.prepare is not None:
        hostile.prepare(place)
    before = set(place.work.rglob("*"))
    done = star_export(*place.words(hostile.line))
    assert done.code == hostile.code, done.err
    lines = [line for line in done.err.splitlines() if line.startswith("error: ")]
    assert len(lines) == (hostile.code == 2)
    assert hostile.says in (lines[0] if lines else done.out)
    assert "Traceback" not in done.err and "[Errno" not in done.err
    assert set(place.work.rglob("*")) == before


def test_the_table_covers_every_verb() -> None:
    verbs = {each.line.split()[0] for each in TABLE}
    assert verbs >= {"compile", "tune", "calibrate", "plan", "finetune", "export", "check", "build", "bench"}
    assert verbs >= {"eval", "best", "search", "serve-config", "inspect", "models", "plugin", "ops", "depth"}
    assert len({(each.name, each.line) for each in TABLE}) == len(TABLE) >= 300
