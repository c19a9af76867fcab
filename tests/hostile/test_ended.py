"""Commands that are ended on their way: one line, nothing half-written, and the next run does it all."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch

from exporter.calibration.record import load_calibration
from exporter.calibration.sums import scored_chunks
from exporter.cli.output import RichStages
from exporter.workflows.folders.export_folder import read_folder
from exporter.workflows.progress import Advance
from tests.commands import BRIEF, Command, Workplace
from tests.vits import make_images

PRUNED = ("--rho", "0.5", "--scorer", "intra")
MOST_S = 120
# Sums are kept every 16 images.
EACH = 90


def flags_of(workplace: Workplace, images: Path, out: Path) -> tuple[str, ...]:
    return tuple(map(str, (*workplace.model, "--images", images, "--out", out)))


def started(verb: str, *flags: str) -> subprocess.Popen[str]:
    """Start a command in a process of its own, with as many threads as here: they decide the last digits."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
    command = [sys.executable, "-m", "exporter", verb, *flags, "--quiet"]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def kill_when(child: subprocess.Popen[str], there: Callable[[], bool]) -> None:
    end_s = time.monotonic() + MOST_S
    while not there():
        assert child.poll() is None, child.communicate()
        assert time.monotonic() < end_s
        time.sleep(0.005)
    child.kill()
    child.communicate()


@pytest.fixture
def hears_ctrl_c() -> Iterator[None]:
    """Shells start what runs in the background with Ctrl-C ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupted_in(stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Press Ctrl-C in a stage: where it first says how far it is, else at its end."""
    shown = RichStages.stage

    @contextmanager
    def show(stages: RichStages, name: str) -> Iterator[Advance]:
        with shown(stages, name) as advance:

            def press(done: int, total: int | None) -> None:
                advance(done, total)
                signal.raise_signal(signal.SIGINT)

            yield press if name == stage else advance
            if name == stage:
                signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(RichStages, "stage", show)


def counted_images(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return a list that grows by each chunk of images that a calibration scores."""
    scored: list[object] = []

    def chunks(*arguments: Any) -> Iterator[object]:
        for chunk in scored_chunks(*arguments):
            scored.append(chunk)
            yield chunk

    monkeypatch.setattr("exporter.calibration.calibrate.scored_chunks", chunks)
    return scored


DENSE = "vit_tiny_patch16_224.dense.onnxruntime-fp32.onnx"
SHORT = ("--preset", "short", "--epochs", "2", "--recipe", str(BRIEF))


@pytest.mark.ort
@pytest.mark.usefixtures("hears_ctrl_c")
@pytest.mark.parametrize(
    ("command", "out", "stage", "left"),
    [
        (("calibrate",), "c.safetensors", "calibration", ["c.safetensors.partial"]),
        (
            ("compile", *PRUNED, "--rounds", "0"),
            "out",
            "lowering, dense",
            ["calibration.safetensors", "calibration.safetensors.partial", "out", DENSE],
        ),
        (("export", "--dense"), "m.onnx", "model", []),
        (("export", "--dense"), "m.onnx", "lowering, dense", ["m.onnx"]),
        (
            ("finetune", *PRUNED, *SHORT, "--eval-images", "{images}"),
            "w.safetensors",
            "training",
            ["w.calibration.partial"],
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else None,
)
def test_ctrl_c(
    command: tuple[str, ...],
    out: str,
    stage: str,
    left: list[str],
    workplace: Workplace,
    star_export: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is left is whole, or has another name than the result."""
    flags = flags_of(workplace, workplace.images, tmp_path / out)
    interrupted_in(stage, monkeypatch)
    done = star_export(*(word.format(images=workplace.images) for word in command), *flags)
    assert done.code == 130, done.err
    expected = re.compile("✓|.* so far|WARNING: .* has no class names")
    assert [line for line in done.err.splitlines() if line and not expected.match(line)] == ["interrupted"]
    assert sorted(path.name for path in tmp_path.rglob("*")) == left


@pytest.mark.exhaustive
def test_calibrations_at_once_and_one_that_is_killed(
    workplace: Workplace, star_export: Command, tmp_path: Path
) -> None:
    """Three processes write one file, and the one that is killed leaves it to the others."""
    images = make_images(tmp_path / "images", classes=2, each=EACH)
    alone, shared = tmp_path / "alone.safetensors", tmp_path / "shared" / "c.safetensors"
    assert star_export("calibrate", *flags_of(workplace, images, alone)).code == 0
    killed, *others = (started("calibrate", *flags_of(workplace, images, shared)) for _ in range(3))
    kill_when(killed, shared.with_name("c.safetensors.partial").exists)
    for each in others:
        told = each.communicate(timeout=MOST_S)
        assert (each.returncode, told[1]) == (0, "")
    assert shared.read_bytes() == alone.read_bytes()
    assert [path.name for path in shared.parent.iterdir() if not path.name.startswith(".")] == [shared.name]


@pytest.mark.exhaustive
@pytest.mark.ort
def test_a_compilation_that_is_killed(
    workplace: Workplace, star_export: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has its final name is whole, is no export folder yet, and is used by the next run."""
    out = tmp_path / "out"
    flags = (*flags_of(workplace, workplace.images, out), *PRUNED, "--rounds", "0")
    kill_when(started("compile", *flags), lambda: any(out.glob("*.dense.*.onnx")))
    onnx.checker.check_model(next(out.glob("*.dense.*.onnx")))
    calibration = (out / "calibration.safetensors").read_bytes()
    assert load_calibration(out / "calibration.safetensors").record.images == 12
    refused = star_export("check", out)
    assert (refused.code, "report.json" in refused.error) == (2, True)
    scored = counted_images(monkeypatch)
    done = star_export("compile", *flags)
    assert done.code == 0, done.err
    assert (out / "calibration.safetensors").read_bytes() == calibration
    assert read_folder(out).models.pruned.artefact.method == "star"
    assert scored == []
    assert not list(out.glob("*.partial"))


@pytest.mark.exhaustive
@pytest.mark.ort
def test_a_second_compilation_that_is_killed(
    workplace: Workplace,
    calibration: Path,
    compiled: Callable[..., Path],
    star_export: Command,
    tmp_path: Path,
) -> None:
    """Killed as it replaces the models of a whole folder, it leaves what the sums refuse, and compile mends it."""
    out = shutil.copytree(compiled(), tmp_path / "out")
    (out / "calibration.safetensors").write_bytes(calibration.read_bytes())
    flags = (
        *flags_of(workplace, workplace.images, out),
        "--rho",
        "0.8",
        "--scorer",
        "intra",
        "--rounds",
        "0",
    )
    flags += ("--calibration", str(out / "calibration.safetensors"))
    pruned = read_folder(out).models.pruned.path
    before = pruned.read_bytes()
    kill_when(started("compile", *flags), lambda: pruned.read_bytes() != before)
    refused = star_export("check", out)
    assert (refused.code, f"{pruned} | got sha256" in refused.error) == (2, True)
    done = star_export("compile", *flags)
    assert done.code == 0, done.err
    assert read_folder(out).models.pruned.artefact.schedule.rho == 0.8
    assert (out / "calibration.safetensors").read_bytes() == calibration.read_bytes()
