"""`star-export eval`: what it prints and writes, and what it refuses in one line."""

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from exporter.core.base.records import Pair
from exporter.processes import Processes
from tests.commands import Command, Workplace, files_of, report_of, succeeded
from tests.shards import encoded, write_shard

pytestmark = pytest.mark.ort
QUICK = ("--batch", "4", "--threads", "1")


@pytest.fixture(scope="module")
def folder(compiled: Callable[..., Path]) -> Path:
    return compiled()


@pytest.fixture(scope="module")
def files(folder: Path) -> Pair[Path]:
    return files_of(folder)


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    """Four images, two of each class, one of which is broken."""
    members: dict[str, bytes | str] = {}
    for at in range(4):
        members |= {
            f"{at}.png": encoded(at) if at != 2 else b"no image",
            f"{at}.cls": str(at % 2),
        }
    return write_shard(tmp_path / "a.tar", members)


def test_a_folder_on_class_folders(
    star_export: Command, folder: Path, workplace: Workplace
) -> None:
    done = succeeded(
        star_export("eval", folder, "--images", workplace.images, *QUICK, "--json")
    )
    models = done.json["models"]
    accuracies = {name: model["accuracy"] for name, model in models.items()}
    assert accuracies == report_of(folder)["quality"]["accuracy"]
    assert list(accuracies) == ["dense", "pruned"]
    pair = done.json["pair"]
    assert (pair["first"], pair["second"]) == ("dense", "pruned")
    assert [label["name"] for label in pair["classes"]] == ["class_0", "class_1"]


def test_the_table_says_it_in_words(
    star_export: Command, folder: Path, workplace: Workplace
) -> None:
    done = succeeded(star_export("eval", folder, "--images", workplace.images, *QUICK))
    for text in (
        "12 images, 2 classes",
        "95 % interval",
        "agreement: ",
        "pruned: ",
        " points of top-1 (95 %: ",
        "only dense is right on ",
    ):
        assert text in done.out


def test_two_files_on_a_tar_file(
    star_export: Command, files: Pair[Path], shard: Path, tmp_path: Path
) -> None:
    out = tmp_path / "differ"
    done = succeeded(
        star_export(
            *("eval", files.pruned, files.dense, "--images", shard, *QUICK, "--json"),
            *("--disagreements", out, "--runtime", "openvino"),
        )
    )
    assert "skipped" in done.err
    assert list(done.json["skipped"]) == ["a.tar/2.png"]
    assert done.json["images"] == 3
    assert set(done.json["models"]) == {files.pruned.stem, files.dense.stem}
    assert {model["runtime"] for model in done.json["models"].values()} == {"openvino"}
    listed = json.loads(out.with_suffix(".json").read_text())["images"]
    with out.with_suffix(".csv").open() as file:
        assert len(list(csv.DictReader(file))) == len(listed)
    assert len(listed) == round(3 * (1 - done.json["pair"]["agreement"]))


def test_pytorch_beside_a_file_alone_and_pruned(
    star_export: Command, folder: Path, files: Pair[Path], workplace: Workplace
) -> None:
    flags = (*workplace.given, *QUICK, "--json")
    done = succeeded(star_export("eval", files.dense, *flags))
    assert set(done.json["models"]) == {"pytorch", files.dense.stem}
    assert done.json["pair"]["first"] == "pytorch"
    assert done.json["pair"]["agreement"] == 1
    assert set(star_export("eval", *flags).json["models"]) == {"dense"}
    done = star_export("eval", *flags, "--schedule", folder / "schedule.json")
    assert set(done.json["models"]) == {"dense", "pruned"}
    pruned = report_of(folder)["quality"]["accuracy"]["pruned"]
    assert done.json["models"]["pruned"]["accuracy"] == pruned


def test_without_labels_two_models_agree(
    star_export: Command, folder: Path, tmp_path: Path
) -> None:
    for at in range(3):
        (tmp_path / f"{at}.png").write_bytes(encoded(at))
    flags = ("eval", folder, "--images", tmp_path, *QUICK)
    done = succeeded(star_export(*flags, "--json"))
    assert done.json["models"]["dense"]["accuracy"] is None
    assert done.json["pair"]["agreement"] in (0, 1 / 3, 2 / 3, 1)
    assert "have no labels" in star_export(*flags).out


def test_too_few_images_for_the_interval(
    star_export: Command, folder: Path, workplace: Workplace
) -> None:
    flags = ("eval", folder, "--images", workplace.images, *QUICK, "--json")
    done = star_export(*flags, "--within", "0.5")
    assert done.code == 2
    assert "--within | got the loss within ± " in done.error
    assert "images are enough" in done.error
    assert done.json["images"] == 12  # what was measured is not lost
    assert star_export(*flags, "--within", "99").code == 0


def test_the_main_process_alone_writes_the_disagreements(
    star_export: Command,
    files: Pair[Path],
    workplace: Workplace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for index in (1, 0):
        monkeypatch.setattr(
            "exporter.cli.eval.processes", lambda index=index: Processes(index, 2)
        )
        flags = (
            "--images",
            workplace.images,
            *QUICK,
            "--disagreements",
            tmp_path / "differ",
        )
        assert star_export("eval", files.pruned, files.dense, *flags).code == 0
        assert (tmp_path / "differ.csv").exists() == (index == 0)
