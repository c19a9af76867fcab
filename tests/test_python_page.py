"""The Python of the pages runs as it stands there."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.folders import write_folder
from tests.pages import blocks
from tests.vits import make_images, make_model, make_vit, random_images


def run(page: str, test: str, **names: Any) -> dict[str, Any]:
    """Run the block that a test of this file is to run, and return its names."""
    marker = f"test: tests/test_python_page.py::{test}"
    (block,) = (each for each in blocks(page) if each.marker == marker)
    exec(block.text, names)
    return names


@pytest.mark.ort
def test_the_chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given: dict[str, Any] = {"model": make_model(num_classes=3), "images": random_images(make_vit(), 8)}
    names = run("docs/python.md", "test_the_chain", **given)
    assert names["parity"].passed
    assert {path.name for path in tmp_path.iterdir()} == {"dense.onnx", "star.onnx"}
    assert isinstance(names["pruned"], torch.nn.Module)


@pytest.mark.ort
def test_the_accuracy_of_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "build").mkdir()
    write_folder(tmp_path / "build/star")
    make_images(tmp_path / "build/digits/held_out", classes=8, each=2, side=16)
    names = run("docs/accuracy.md", "test_the_accuracy_of_a_folder")
    assert names["result"].pair.images == 16
    assert set(names["result"].models) == {"dense", "pruned"}
    assert capsys.readouterr().out.startswith("<Evaluation of 16 images: dense ")


def test_fine_tuning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for part in ("train", "held_out"):
        make_images(tmp_path / "build/digits" / part, classes=10, each=1, side=32)
    names = run("docs/finetuning.md", "test_fine_tuning")
    assert names["result"].images == 10
    assert names["result"].trained.settings.epochs == 1
    assert (tmp_path / "build/tuned.safetensors").is_file()
    assert capsys.readouterr().out.strip() == str(names["result"].recovery.status)
