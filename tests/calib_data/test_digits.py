"""The digits' halves are a partition, and nothing that differs from the manifest is ever written."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

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
