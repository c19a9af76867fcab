"""The digits' halves are a partition, and nothing that differs from the manifest is ever written."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from exporter.core.base.errors import OutputError
from tests.benchmarks.scripts import script

digits = script("../calib_data/digits.py")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("digits") / "images"
    assert digits.write_digits(out)
    return out


@pytest.fixture(scope="module")
def offset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("offset") / "images"
    assert digits.write_digits(out, digits.SETS["offset-digits"])
    return out


def indices(root: Path) -> list[int]:
    return sorted(int(path.stem.partition("-")[0]) for path in root.glob("*/*.png"))


@pytest.mark.parametrize(("folder", "places"), [("written", 1), ("offset", 6)])
def test_halves_are_a_partition(
    folder: str, places: int, request: pytest.FixtureRequest
) -> None:
    root = request.getfixturevalue(folder)
    train, held_out = (indices(root / name) for name in ("train", "held_out"))
    assert not set(train) & set(held_out)
    assert list(range(1797)) == sorted({*train, *held_out})
    assert len(train) == places * len(set(train))
    assert len(held_out) == len(set(held_out))


def test_files_hold_what_was_drawn(written: Path) -> None:
    halves = digits.load_split(digits.SETS["digits"])
    for name, half in halves.items():
        for position in (0, len(half.labels) - 1):
            path = (
                written
                / name
                / str(half.labels[position])
                / f"{half.indices[position]:04d}.png"
            )
            image = Image.open(path)
            assert image.mode == "L"
            assert image.size == (16, 16)
            np.testing.assert_array_equal(half.pixels[position], np.asarray(image))


def test_offset_digits_are_anywhere_and_whole(offset: Path) -> None:
    """The same 8x8 digit in each of its images, at places that reach all parts of the canvas."""
    corners = set()
    for index in sorted({path.stem[:4] for path in (offset / "train" / "7").iterdir()}):
        shown = set()
        for path in (offset / "train" / "7").glob(f"{index}-*.png"):
            pixels = np.asarray(Image.open(path))
            assert pixels.shape == (28, 28)
            rows, columns = (np.flatnonzero(pixels.any(axis=axis)) for axis in (1, 0))
            corners.add((rows[0] // 10, columns[0] // 10))
            assert min(rows[0], columns[0]) >= 2
            assert max(rows[-1], columns[-1]) < 26
            shown.add(
                pixels[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1].tobytes()
            )
        assert len(shown) == 1
    assert {(row, column) for row in (0, 1) for column in (0, 1)} <= corners


def test_second_call_leaves_a_complete_folder(written: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in written.rglob("*.png")}
    assert not digits.write_digits(written)
    assert before == {path: path.stat().st_mtime_ns for path in written.rglob("*.png")}


def test_incomplete_folder_is_refused(written: Path, tmp_path: Path) -> None:
    out = tmp_path / "images"
    shutil.copytree(written, out)
    next((out / "train" / "3").iterdir()).unlink()
    with pytest.raises(OutputError, match="delete it first"):
        digits.write_digits(out)


def test_mismatch_is_one_line_and_exit_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = replace(digits.SETS["digits"], seed=1)
    monkeypatch.setitem(digits.SETS, "digits", other)
    assert digits.main(["--out", str(tmp_path / "images")]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert "train half of digits" in lines[0]
    assert not list(tmp_path.iterdir())
