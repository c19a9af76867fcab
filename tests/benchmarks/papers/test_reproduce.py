"""Every table is filled in, each number in its cell, and none is measured twice; what is missing leaves a blank."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import timm
import torch

from tests.benchmarks.papers.quick import TUNING, flags, rows_of
from tests.benchmarks.scripts import script
from tests.exhaustive import also

reproduce, measure = script("papers/reproduce.py"), script("papers/measure.py")
TABLES, COLUMNS = reproduce.TABLES, script("papers/tables.py").COLUMNS
# They train or collect samples of depth for seconds.
LONG = (
    "star-1",
    "star-2",
    "star-6",
    "depth-models",
    "depth-samples",
    "depth-observations",
    "depth-tokens",
)
DEIT_T = "deit_tiny_patch16_224"


@pytest.mark.parametrize("name", TABLES)
def test_printed_numbers_fit_their_columns(name: str) -> None:
    table = TABLES[name]
    accuracy = [
        at
        for at, column in enumerate(table.columns)
        if column.startswith("top") and name.startswith("star")
    ]
    for row in table.rows:
        assert len(row.printed) == len(table.columns), row.label
        assert (row.way is None) == bool(row.why), row.label
        assert all(
            25 < value < 100
            for at in accuracy
            if (value := row.printed[at]) is not None
        )


def shown(name: str, capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert reproduce.main([name, *map(str, words)]) == 0
    return capsys.readouterr().out


def cells_of(shown: str) -> dict[str, list[str]]:
    """Our cells of each row by its label."""
    lines = [
        line
        for line in shown.splitlines()
        if line.startswith("| ") and "printed" not in line
    ]
    rows = [[cell.strip() for cell in line[1:-1].split("|")] for line in lines]
    return {cells[0]: cells[2::2] for cells in rows}


@pytest.mark.parametrize(
    "name", [also(name) if name in LONG else name for name in TABLES]
)
def test_every_number_stands_in_its_cell(
    name: str,
    place: Any,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = replace(TABLES[name], rows=rows_of(name))
    monkeypatch.setitem(TABLES, name, table)
    found = cells_of(shown(name, capsys, *flags(place)))
    lab = measure.Lab(place, TUNING)
    assert list(found) == [reproduce._name(row) for row in table.rows]
    for row in table.rows:
        numbers = (
            {} if row.way is None else lab.numbers(row.model, row.way, table.columns)
        )
        for column, text in zip(
            table.columns, found[reproduce._name(row)], strict=True
        ):
            number = numbers.get(column)
            mine = "" if number is None else f"{number:.{COLUMNS[column]}f}"
            assert text == ("–" if row.way is None else mine), (row.label, column)


def test_weights_of_a_folder_fill_in_what_needs_no_images(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    weights = tmp_path / "weights"
    weights.mkdir()
    torch.save(
        {"model": timm.create_model(DEIT_T).state_dict()}, weights / f"{DEIT_T}.pth"
    )
    found = shown(
        "star-4", capsys, "--weights", weights, "--models", DEIT_T, "--out", tmp_path
    )
    assert "| DeiT-Tiny, ρ 1 | 1.3 | 1.25 | 72.2 |  | 91.1 |  |" in found
    assert "| DeiT-Tiny, ρ 0.9 | 0.9 |  | 71.3 |  | 90.7 |  |" in found


def test_a_model_without_weights_is_blank_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert (
        reproduce.main(["star-5", "--models", "lvvit_s", "--out", str(tmp_path)]) == 0
    )
    printed = capsys.readouterr()
    assert "lvvit_s: " in printed.err
    assert "| LV-ViT-S, ρ 1 | 6.5 | 6.48 | 83.3 |  | 96.3 |  |" in printed.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--images", "none"), "error: none | got no such folder"),
        (("--rounds", "0"), "error: --rounds | got"),
        (("--rounds", "2"), "error: rounds | got 2 | need at least 5"),
    ],
)
def test_what_a_user_can_mend_is_one_line(
    words: tuple[str, str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert (
        reproduce.main(
            ["star-4", "--stand-in", "digits_vit", *words, "--out", str(tmp_path)]
        )
        == 2
    )
    assert message in capsys.readouterr().err


DENSE_ROWS = [
    (name, row, row.printed[table.columns.index("GFLOPs")])
    for name, table in TABLES.items()
    if "GFLOPs" in table.columns
    for row in table.rows
    if row.way is not None and not row.way.prunes
]


@pytest.mark.parametrize(
    ("name", "row", "printed"),
    [(name, row, printed) for name, row, printed in DENSE_ROWS if printed is not None],
    ids=lambda each: getattr(each, "label", str(each)),
)
def test_every_unpruned_row_has_the_printed_multiply_adds(
    name: str, row: Any, printed: float, tmp_path: Path
) -> None:
    """Within half a printed digit, without weights or images."""
    lab = measure.Lab(script("papers/place.py").Place(out=tmp_path), {})
    found = lab.numbers(row.model, row.way, ("GFLOPs",))["GFLOPs"]
    half = 0.5 * 10 ** -TABLES[name].decimals[TABLES[name].columns.index("GFLOPs")]
    assert found == pytest.approx(printed, abs=half)
