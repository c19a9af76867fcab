"""Artefacts appear whole or not at all."""

import errno
import hashlib
import os
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Event

import pytest

from exporter.core.base.errors import ArtefactError, OutputError
from exporter.core.base.files import (
    Unfinished,
    folder_beside,
    path_of,
    sha256_of,
    writable_file,
    writable_folder,
    written_beside,
)


def test_the_file_appears_when_the_body_is_done(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "file"
    with written_beside(target) as partial:
        partial.write_text("new")
        assert not target.exists()
    assert target.read_text() == "new"
    assert list(target.parent.iterdir()) == [target]


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_text("old")
    with pytest.raises(KeyError), written_beside(target) as partial:
        partial.write_text("half")
        raise KeyError
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    with (
        pytest.raises(OutputError, match="No space left on device"),
        written_beside(tmp_path / "file") as partial,
    ):
        partial.write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_filled_at_once_and_keeps_its_other_files(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "folder"
    with folder_beside(target) as aside:
        (aside / "inner").mkdir()
        (aside / "inner" / "new").write_text("new")
        assert not (target / "inner").exists()
    (target / "own").write_text("own")
    with folder_beside(target) as aside:
        (aside / "other").write_text("other")
    assert sorted(path.name for path in target.rglob("*")) == [
        "inner",
        "new",
        "other",
        "own",
    ]


def test_a_folder_on_a_full_disk_is_as_before(tmp_path: Path) -> None:
    for target in (tmp_path / "deep" / "folder", tmp_path):
        with (
            pytest.raises(OutputError, match="No space left"),
            folder_beside(target) as aside,
        ):
            (aside / "half").write_text("half")
            raise OSError(errno.ENOSPC, "No space left on device")
        assert list(tmp_path.iterdir()) == []


def test_a_folder_is_not_filled_where_one_file_cannot_be_replaced(
    tmp_path: Path,
) -> None:
    (tmp_path / "b").mkdir()
    with (
        pytest.raises(OutputError, match=r"b \| got a folder"),
        folder_beside(tmp_path) as aside,
    ):
        for name in ("a", "b"):
            (aside / name).write_text("new")
    assert list(tmp_path.iterdir()) == [tmp_path / "b"]


def _read_only(path: Path) -> None:
    path.write_text("old")
    path.chmod(0o444)


@pytest.mark.parametrize(
    ("make", "got"),
    [
        (os.mkfifo, "no regular file"),
        (lambda path: path.symlink_to("/dev/full"), "no regular file"),
        (lambda path: path.symlink_to(path.name), "no regular file"),
        (_read_only, "a read-only file"),
        (Path.mkdir, "a folder"),
    ],
)
def test_only_a_file_is_replaced(
    make: Callable[[Path], object], got: str, tmp_path: Path
) -> None:
    path = tmp_path / "place"
    make(path)
    before = path.lstat()
    with pytest.raises(OutputError, match=got), written_beside(path) as partial:
        partial.write_text("new")
    with pytest.raises(OutputError, match=got):
        writable_file(path)
    after = path.lstat()
    # Not the time of the last access: a link is read.
    assert after.st_ino == before.st_ino
    assert after.st_mode == before.st_mode
    assert after.st_mtime_ns == before.st_mtime_ns
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_and_its_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link, real = tmp_path / "link", tmp_path / "real" / "file"
    link.symlink_to(real)
    for text in ("first", "second"):
        with written_beside(writable_file(link)) as partial:
            partial.write_text(text)
        assert link.is_symlink()
        assert real.read_text() == text


def test_a_name_too_long_for_the_temporary_file_is_refused_before_the_work(
    tmp_path: Path,
) -> None:
    with pytest.raises(OutputError, match="File name too long"):
        writable_file(tmp_path / ("x" * 250))


def test_processes_try_the_same_place_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have made the folder when the first one ends; only then does the second one write into it."""
    place = tmp_path / "new" / "out"
    write = tempfile.TemporaryFile
    both = Barrier(2)
    ended = Event()

    def written(*, dir: Path) -> object:  # noqa: A002  (the name is tempfile's)
        if both.wait(5) == 1:
            assert ended.wait(5)
        return write(dir=dir)

    def tried(_: int) -> Path:
        found = writable_folder(place)
        ended.set()
        return found

    monkeypatch.setattr(tempfile, "TemporaryFile", written)
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(tried, range(2))) == [place, place]
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_tried_and_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("mine")
    for place in (tmp_path / "new" / "out", tmp_path):
        assert writable_folder(place) == place
    for place in (tmp_path / "taken" / "out", tmp_path / "taken"):
        with pytest.raises(OutputError, match="taken"):
            writable_folder(place)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [
        ("taken", "mine")
    ]


def test_folders_deeper_than_python_makes_are_refused(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*"x" * 1900, "file")
    with pytest.raises(OutputError, match=r"got \d{4} folders in each other"):
        writable_folder(deep.parent)
    with (
        pytest.raises(OutputError, match=r"got \d{4} folders in each other"),
        written_beside(deep),
    ):
        pass
    assert not list(tmp_path.iterdir())


def test_sha256(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"star" * 500_000)
    assert sha256_of(tmp_path / "file") == hashlib.sha256(b"star" * 500_000).hexdigest()


@pytest.mark.parametrize("text", ["x" * 256, "é" * 128, "x/" * 2048, "a\0b"])
def test_a_text_that_names_no_path_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="names of at most 255 bytes"):
        path_of(text)


@pytest.mark.parametrize("text", ["", ".", "a/b", "/", "x" * 255, "é" * 127])
def test_any_other_text_is_a_path(text: str) -> None:
    assert path_of(text) == Path(text)


def test_what_another_process_left_or_still_writes_stays(tmp_path: Path) -> None:
    target, left = tmp_path / "w", tmp_path / ".w.0123abcd.partial"
    left.touch()
    with written_beside(target) as first, written_beside(target) as second:
        assert first != second
        first.write_text("first")
        second.write_text("second")
    assert {path.name for path in tmp_path.iterdir()} == {"w", left.name}


def unfinished(path: Path, job: str = "this job") -> Unfinished:
    return Unfinished(path, "search", job)


def test_records_are_appended_for_their_own_job_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "records"
    assert unfinished(path).records() == []
    for record in (1, {"a": [2.5, "é"]}):
        unfinished(path).append(record)
    assert unfinished(path).records() == [1, {"a": [2.5, "é"]}]
    with pytest.raises(
        ArtefactError,
        match=r"records \| got a search of other settings.*delete it to start",
    ):
        unfinished(path, "another job").records()


@pytest.mark.parametrize("torn", [1, 3, 7])
def test_a_record_that_is_torn_is_none_and_the_next_one_is_whole(
    tmp_path: Path, torn: int
) -> None:
    file = unfinished(tmp_path / "records")
    file.append("whole")
    file.append("half")
    file.path.write_bytes(file.path.read_bytes()[:-torn])
    file.append("next")
    assert file.records() == (
        ["whole", "half", "next"] if torn == 1 else ["whole", "next"]
    )


@pytest.mark.parametrize("content", ["", "text", "[]", "{}", "\xff"])
def test_a_file_of_another_kind_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "records").write_text(content)
    with pytest.raises(
        ArtefactError, match=r"records \| got .* \| need an unfinished search"
    ):
        unfinished(tmp_path / "records").records()
