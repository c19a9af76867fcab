"""Every table and figure of the paper is filled in on the bundled model; what is missing leaves a blank."""

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.disk_cache import shared_folder

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "benchmarks/papers/reproduce.py"
sys.path.insert(0, str(SCRIPT.parent))
DEFINED = runpy.run_path(str(SCRIPT))
sys.path.pop(0)
TABLES, FIGURES = DEFINED["TABLES"], DEFINED["FIGURES"]
# One model's rows: with a stand-in all models are the same.
ONE = ("--models", "deit_base_patch16_224")
ROWS_OF = {"star-5": ("--models", "lvvit_m")}


@pytest.fixture(scope="module")
def digits() -> Path:
    """Two training digits of each class."""

    def make(folder: Path) -> None:
        script = runpy.run_path(str(ROOT / "calib_data/digits.py"))
        script["write_digits"](folder / "all", script["SETS"]["digits"])
        for place in sorted((folder / "all" / "train").iterdir()):
            for path in sorted(place.iterdir())[:2]:
                target = folder / "few" / place.name / path.name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(path.read_bytes())

    return shared_folder("few digits", make) / "few"


def reproduce(name: str, out: Path, capsys: pytest.CaptureFixture[str], *flags: object) -> str:
    assert DEFINED["main"]([name, *map(str, flags), "--out", str(out)]) == 0
    return capsys.readouterr().out


def given(digits: Path) -> tuple[object, ...]:
    places = ("--images", digits, "--eval-images", digits, "--shifted-images", digits)
    quick = ("--max-images", 2, "--most-batch", 4, "--rounds", 5, "--batch-size", 10, "--augment", "affine")
    return ("--stand-in", "digits_vit", *places, *quick, "--tuning-epochs", 1)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reproduced")


@pytest.mark.parametrize("name", TABLES)
def test_every_table_is_filled_in(
    name: str, digits: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = reproduce(name, out, capsys, *given(digits), *ROWS_OF.get(name, ONE))
    columns = TABLES[name].columns
    rows = [
        line.split(" | ") for line in shown.splitlines() if line.startswith("| ") and "printed" not in line
    ]
    model = ROWS_OF.get(name, ONE)[1]
    expected = [row for row in TABLES[name].rows if row.model == model]
    assert len(rows) == len(expected)
    for cells, row in zip(rows, expected, strict=True):
        ours = [cell.strip(" |") for cell in cells[2::2]]
        assert len(ours) == len(columns)
        dense = row.way is not None and not row.way.prunes
        for column, text in zip(columns, ours, strict=True):
            blank = row.way is None or (dense and column in ("FLOPs saved, %", "speed-up, %"))
            assert bool(text) != blank, (row.label, column)
    again = reproduce(name, out, capsys, *given(digits), *ROWS_OF.get(name, ONE))
    assert again == shown


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_is_drawn(
    name: str, digits: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(reproduce(name, out, capsys, *given(digits), *ONE).strip())
    assert path.read_bytes().startswith(b"\x89PNG")


def test_without_images_only_what_needs_none_is_filled_in(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = reproduce("star-4", tmp_path, capsys, "--stand-in", "digits_vit", *ONE)
    first, second = (line for line in shown.splitlines() if "DeiT-Base, ρ 1" in line or "ρ 0.9" in line)
    assert first.endswith("| 17.6 | 0.59 | 81.8 |  | 95.6 |  |")
    assert second.endswith("| 14 |  | 81.6 |  | 95.5 |  |")


def test_a_model_without_weights_is_blank_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert DEFINED["main"](["star-5", "--models", "lvvit_s", "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr()
    assert "lvvit_s: " in shown.err
    assert "| LV-ViT-S, ρ 1 | 6.5 |  | 83.3 |  | 96.3 |  |" in shown.out


def test_a_folder_that_is_none_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["star-4", "--stand-in", "digits_vit", "--images", "none", "--out", str(tmp_path)]
    assert DEFINED["main"](words) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if line.startswith("error: none | got no such folder")]


@pytest.mark.parametrize("name", TABLES)
def test_printed_numbers_fit_their_columns(name: str) -> None:
    table = TABLES[name]
    accuracy = [at for at, column in enumerate(table.columns) if column.startswith("top")]
    for row in table.rows:
        assert len(row.printed) == len(table.columns), row.label
        assert all(25 < value < 100 for at in accuracy if (value := row.printed[at]) is not None)


def test_printed_flops_follow_from_what_they_save() -> None:
    """Table 1 prints both; a digit read wrongly would contradict the other. Peers round more coarsely."""
    whole: dict[str, Any] = {}
    for row in TABLES["star-1"].rows:
        flops, saved = row.printed[2], row.printed[3]
        if row.label.endswith("baseline"):
            whole[row.model] = flops
        elif saved is not None:
            close = 3.5 if row.way is None else 0.1
            assert saved == pytest.approx(100 * (1 - flops / whole[row.model]), abs=close), row.label
