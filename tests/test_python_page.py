"""The Python of the pages runs as it stands there."""

from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import exporter
from tests.folders import write_folder
from tests.pages import block_of
from tests.rounding import assert_networks_own
from tests.vits import make_images, make_model, make_vit, random_images


def run(page: str, test: str, **names: Any) -> dict[str, Any]:
    """Run the block that a test of this file is to run, and return its names."""
    exec(block_of(page, f"tests/test_python_page.py::{test}"), names)
    return names


@pytest.mark.ort
def test_the_chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given: dict[str, Any] = {
        "model": make_model(num_classes=3),
        "images": random_images(make_vit(), 8),
    }
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
    assert names["result"].dense.images == 10
    assert names["result"].trained.settings.epochs == 1
    assert (tmp_path / "build/tuned.safetensors").is_file()
    assert capsys.readouterr().out.strip() == str(names["result"].recovery.status)


class Attention(nn.Module):
    heads = 2

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.proj = nn.Linear(32, 96), nn.Linear(32, 32)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            each.unflatten(2, (self.heads, -1)).transpose(1, 2)
            for each in self.qkv(x).chunk(3, dim=2)
        )
        return self.proj(
            nn.functional.scaled_dot_product_attention(query, key, value)
            .transpose(1, 2)
            .flatten(2)
        )


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(32)
        self.attention = Attention()
        self.norm2 = nn.LayerNorm(32)
        layers = {"fc1": nn.Linear(32, 64), "act": nn.GELU(), "fc2": nn.Linear(64, 32)}
        self.mlp = nn.Sequential(OrderedDict(layers))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class OwnNetwork(nn.Module):
    """A ViT of nobody's library, with the parts that the page's adapter names."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 32, 16, 16)
        self.token = nn.Parameter(torch.randn(1, 1, 32))
        self.blocks = nn.Sequential(Block(), Block(), Block())
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, 5)

    def embed(self, images: Tensor) -> Tensor:
        return torch.cat(
            [
                self.token.expand(images.shape[0], -1, -1),
                self.patches(images).flatten(2).mT,
            ],
            dim=1,
        )

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.embed(images)))[:, 0])


@pytest.mark.ort
def test_an_adapter_to_copy() -> None:
    torch.manual_seed(0)
    network = OwnNetwork().eval()
    adapter = run("docs/models.md", "test_an_adapter_to_copy")["YourViT"]
    vit = exporter.load_model(adapter(network, "mine"))
    images = torch.randn(4, 3, 224, 224)
    pruned = exporter.prune(vit, exporter.plan(vit, 0.5))
    with torch.inference_mode():
        dense = exporter.dense(vit)(images)
    assert_networks_own(dense, vit, images)
    assert exporter.check(pruned, exporter.export(pruned), images.numpy()).passed
