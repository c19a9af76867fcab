"""`star-export bench`: what it prints, and what it refuses."""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from exporter.evaluation.breakdown import CLASSES
from tests.commands import Command
from tests.folders import save_all_checksums
from tests.tiny_onnx import linear_classifier

QUICK = ["--batches", "1,2", "--rounds", "5", "--warmup", "0", "--profile-runs", "1"]


@pytest.fixture(scope="module")
def folder(compiled: Callable[..., Path]) -> Path:
    return compiled()


@pytest.fixture
def copied(folder: Path, tmp_path: Path) -> Path:
    """A folder to break."""
    return Path(shutil.copytree(folder, tmp_path / "copy"))


def files_of(folder: Path) -> dict[str, Path]:
    files = json.loads((folder / "report.json").read_text())["files"]
    return {role: folder / name for role, name in files.items()}


@pytest.mark.ort
def test_json_has_every_number(star_export: Command, folder: Path) -> None:
    done = star_export("bench", folder, *QUICK, "--threads", "1", "--json")
    assert done.code == 0, done.err
    result = done.json
    assert [each["batch"] for each in result["batches"]] == [1, 2]
    for each in result["batches"]:
        assert each["throughput"]["dense"]["images_per_s"] > 0
        assert len(each["throughput"]["pruned"]["rounds_ms"]) == 5
        assert each["comparison"]["outcome"] in ("faster", "slower", "undecided")
        assert each["comparison"]["mac_ratio"] == pytest.approx(
            result["macs"]["dense"] / result["macs"]["pruned"]
        )
        assert each["selection"]["cost"]["median"] > 0
    for each in result["batches"]:
        parts = each["breakdown_ms"]
        assert set(parts["pruned"]) == set(CLASSES)
        assert parts["dense"]["selection"] == 0 < parts["pruned"]["selection"]
    assert (result["settings"]["threads"], result["hardware"]["threads"]) == (1, 1)
    assert (result["model"], result["method"], result["rho"]) == ("vit_tiny_patch16_224", "star", 0.5)


@pytest.mark.ort
def test_the_table_says_where_it_was_measured(star_export: Command, folder: Path) -> None:
    done = star_export("bench", folder, *QUICK)
    assert done.code == 0, done.err
    for text in ("GMACs", "selection cost at batch 2", "5 rounds after 0", "one thread per physical core"):
        assert text in done.out


@pytest.mark.ort
def test_two_files_in_place_of_a_folder(star_export: Command, folder: Path, tmp_path: Path) -> None:
    files = files_of(folder)
    flags = ("--dense", files["dense"], "--pruned", files["pruned"], *QUICK, "--json")
    (first, _) = star_export("bench", *flags, "--profile-runs", "0", "--no-selection-cost").json["batches"]
    assert first["breakdown_ms"] is first["selection"] is None
    np.savez(tmp_path / "own.npz", images=np.zeros((1, 3, 32, 32), np.float32))
    assert star_export("bench", *flags, "--reference", tmp_path / "own.npz").code == 0


@pytest.mark.ort
def test_without_onnx_the_selection_cost_is_left_out(
    star_export: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    done = star_export("bench", folder, *QUICK, "--json")
    assert "left out: it needs onnx" in done.err
    result = done.json
    assert all(each["selection"] is None for each in result["batches"])
    assert result["batches"][0]["breakdown_ms"]["pruned"]["selection"] > 0  # TopK is known by its operator


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--batches", "0"], "--batches | got [0] | need an integer from 1"),
        (["--batches", "1,-4"], "--batches | got [1, -4]"),
        (["--batches", ""], "--batches | got []"),
        (["--batches", "1,two"], "--batches | got [1, 'two']"),
        (["--rounds", "4"], "--rounds | got 4 | need an integer, at least 5"),
        (["--warmup", "-1"], "--warmup | got -1"),
        (["--dense", "d.onnx"], "a folder and files"),
        (["--reference", "none.npz"], "none.npz"),
    ],
)
def test_settings_out_of_range(star_export: Command, folder: Path, flags: list[str], message: str) -> None:
    done = star_export("bench", folder, *flags)
    assert done.code == 2
    assert message in done.error


@pytest.mark.parametrize("flags", [[], ["--dense", "d.onnx"], ["--pruned", "p.onnx"]])
def test_neither_a_folder_nor_two_files(star_export: Command, flags: list[str]) -> None:
    done = star_export("bench", *flags)
    assert done.code == 2
    assert "an export folder, or --dense FILE --pruned FILE" in done.error


def test_a_folder_that_is_missing_or_empty(star_export: Command, tmp_path: Path) -> None:
    for place in (tmp_path / "none", tmp_path):
        done = star_export("bench", place)
        assert done.code == 2
        assert "export folder" in done.error


@pytest.mark.ort
@pytest.mark.parametrize("role", ["dense", "pruned"])
@pytest.mark.parametrize("content", [None, b"", b"text"])
def test_a_model_that_is_missing_or_broken(
    star_export: Command, copied: Path, role: str, content: bytes | None
) -> None:
    path = files_of(copied)[role]
    path.unlink()
    if content is not None:
        path.write_bytes(content)
        save_all_checksums(copied)
    done = star_export("bench", copied, *QUICK)
    assert done.code == 2
    assert path.name in done.error


@pytest.mark.ort
def test_models_in_the_wrong_places(star_export: Command, folder: Path) -> None:
    files = files_of(folder)
    for dense, pruned, message in (
        (files["pruned"], files["pruned"], "got a pruned model | need the dense one"),
        (files["dense"], files["dense"], "drops no patch"),
    ):
        done = star_export("bench", "--dense", dense, "--pruned", pruned)
        assert done.code == 2
        assert message in done.error


@pytest.mark.ort
def test_a_model_of_somebody_else(star_export: Command, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "other.onnx").write_bytes(linear_classifier())
    done = star_export(*("bench", "--dense", tmp_path / "other.onnx", "--pruned", files_of(folder)["pruned"]))
    assert done.code == 2
    assert "other.onnx | got a model without star-export's metadata" in done.error


@pytest.mark.ort
def test_a_dense_model_with_other_weights(star_export: Command, copied: Path) -> None:
    path = files_of(copied)["dense"]
    model = onnx.load(path)
    next(entry for entry in model.metadata_props if entry.key.endswith("weights_sha256")).value = "0" * 64
    onnx.save(model, path)
    save_all_checksums(copied)
    done = star_export("bench", copied)
    assert done.code == 2
    assert "other weights or shapes" in done.error


@pytest.mark.ort
def test_images_of_another_size(star_export: Command, copied: Path) -> None:
    np.savez(copied / "reference.npz", images=np.zeros((1, 3, 16, 16), np.float32))
    shutil.rmtree(copied / "inputs")  # they would be others than those of the reference
    save_all_checksums(copied)
    done = star_export("bench", copied, *QUICK)
    assert done.code == 2
    assert "reference.npz | got no dense_logits" in done.error
    np.savez(copied / "other.npz", images=np.zeros((1, 3, 16, 16), np.float32))
    done = star_export("bench", copied, *QUICK, "--reference", copied / "other.npz")
    assert "input images" in done.error
