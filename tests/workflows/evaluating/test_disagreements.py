"""Both files list the same images, and are written whole."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from exporter.errors import OutputError
from exporter.evaluation.accuracy import Predictions
from exporter.workflows.evaluating.evaluate import (
    Disagreement,
    disagreement_paths,
    disagreements,
    save_disagreements,
)

NAMES = ("dense", "pruned")


def predictions(best: list[int], labels: list[int]) -> Predictions:
    return Predictions(np.array(best)[:, None], np.array(labels))


@pytest.mark.parametrize(("labels", "told"), [([0, 1, 2], [1, 2]), ([-1] * 3, [None, None])])
def test_only_the_images_that_differ_are_listed(labels: list[int], told: list[int | None]) -> None:
    found = disagreements(predictions([0, 1, 2], labels), predictions([0, 2, 1], labels), ["a", "b", "c"])
    assert found == (Disagreement("b", told[0], 1, 2), Disagreement("c", told[1], 2, 1))


@pytest.mark.parametrize("name", ["out.v1", "out.v1.json", "out.v1.csv"])
def test_both_files_say_the_same(tmp_path: Path, name: str) -> None:
    found = (Disagreement('cat/1, "new".png', 3, 3, 5), Disagreement("dog/é.png", None, 0, 1))
    save_disagreements(found, NAMES, tmp_path / "new" / name)
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["out.v1.csv", "out.v1.json"]
    told = json.loads((tmp_path / "new/out.v1.json").read_text(encoding="utf-8"))
    assert (told["first"], told["second"]) == NAMES
    assert told["images"][0] == {"image": 'cat/1, "new".png', "label": 3, "first": 3, "second": 5}
    with (tmp_path / "new/out.v1.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    assert rows == [
        ["image", "label", "dense", "pruned"],
        ['cat/1, "new".png', "3", "3", "5"],
        ["dog/é.png", "", "0", "1"],
    ]


def test_a_place_that_cannot_be_written_is_found_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError):
        disagreement_paths(tmp_path / "file" / "out")
    (tmp_path / "out.csv").mkdir()
    with pytest.raises(OutputError, match=r"out\.csv \| got a folder"):
        disagreement_paths(tmp_path / "out")
    with pytest.raises(OutputError, match=r"^/ \| got a folder"):
        disagreement_paths(Path("/"))
