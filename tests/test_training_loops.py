"""The loops of the page on training run as they stand there, for two steps."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from torch import Tensor, nn

from exporter.models.pruned_module import is_pruned
from tests.models.huggingface.saved import make
from tests.pages import ROOT, block_of
from tests.vits import make_model

# Two processes that wait for each other end at last.
HUNG_S = 300
PAGE = "docs/training-loop.md"
IMAGES = torch.randn(8, 3, 32, 32, generator=torch.Generator().manual_seed(1))
BATCHES = [(IMAGES[:4], torch.arange(4)), (IMAGES[4:], torch.arange(3, 7))]


def text_of(test: str) -> str:
    text = block_of(PAGE, f"tests/test_training_loops.py::{test}")
    assert len(text.splitlines()) < 40
    return text


def run(test: str, **names: Any) -> dict[str, Any]:
    """Run the block that a test is to run, and return its names."""
    exec(text_of(test), names)
    return names


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.ort
def test_ten_lines() -> None:
    model = make_model()
    before = weights_of(model)
    names = run("test_ten_lines", model=model, batches=BATCHES)
    assert names["parity"].passed
    assert not is_pruned(model)
    after = model.state_dict()
    assert not any(after[name].equal(value) for name, value in before.items())


def test_a_plain_loop() -> None:
    model = make_model()
    before = weights_of(model)
    names = run("test_a_plain_loop", model=model, loader=BATCHES, epochs=1)
    assert all(value.equal(before[name]) for name, value in model.state_dict().items())
    assert names["loss"].isfinite()
    model.load_state_dict(torch.load("student.pth"))


@pytest.mark.filterwarnings("ignore:'pin_memory' argument")  # of a CPU alone
def test_the_trainer() -> None:
    model = make("vit").train()
    rows = [
        {"pixel_values": image, "labels": index % 7}
        for index, image in enumerate(IMAGES)
    ]
    names = run("test_the_trainer", model=model, dataset=rows)
    assert names["trainer"].state.global_step == 2
    assert isinstance(names["onnx_model"], onnx.ModelProto)
    again = type(model).from_pretrained("build/trained")
    trained = names["pruned"].state_dict()
    assert all(value.equal(trained[key]) for key, value in again.state_dict().items())


SETUP = """
import torch
from tests.test_training_loops import BATCHES
from tests.vits import make_model

torch.set_num_threads(1)
model = make_model()
rows = [row for batch in BATCHES for row in zip(*batch)]
loader = torch.utils.data.DataLoader(rows, batch_size=2)
"""


@pytest.mark.ort
@pytest.mark.exhaustive
def test_accelerate_in_two_processes(tmp_path: Path) -> None:
    """Both processes end with the same weights, which are the whole batch's."""
    script = tmp_path / "train.py"
    told = 'print("weights", sum(p.sum().item() for p in pruned.parameters()))\n'
    script.write_text(SETUP + text_of("test_accelerate_in_two_processes") + told)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2"]
    done = subprocess.run(
        [*launcher, str(script)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "ACCELERATE_USE_CPU": "true"},
        capture_output=True,
        text=True,
        check=False,
        timeout=HUNG_S,
    )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("weights")]
    assert len(lines) == 2
    assert len(set(lines)) == 1
    onnx.load("pruned.onnx")
