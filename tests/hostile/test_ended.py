"""Commands that are ended on their way: one line, nothing half-written, and the next run does it all."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import onnx
import pytest
import torch

from exporter.calibration.record import load_calibration
from exporter.cli.output import RichStages
from exporter.core.base.progress import Advance
from exporter.serve.export_folder import read_models
from tests.commands import BRIEF, Command, Workplace, succeeded
from tests.killed import killed
from tests.power_cuts import none_to_score
from tests.vits import make_images

PRUNED = ("--rho", "0.5", "--scorer", "intra")
SAVE_ONNX = "exporter.jobs.variant.save_onnx"
SAVE_SUMS = "exporter.calibration.calibrate.save_sums"


def flags_of(workplace: Workplace, images: Path, out: Path) -> tuple[str, ...]:
    return tuple(map(str, (*workplace.model, "--images", images, "--out", out)))


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
            "export, dense",
            [
                "calibration.safetensors",
                "calibration.safetensors.partial",
                "out",
                DENSE,
            ],
        ),
        (("export", "--dense"), "m.onnx", "model", []),
        (("export", "--dense"), "m.onnx", "export, dense", ["m.onnx"]),
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
    done = star_export(
        *(word.format(images=workplace.images) for word in command), *flags
    )
    assert done.code == 130, done.err
    warnings = "has no class names|is a guess|are trained on"
    expected = re.compile(f"✓|.* so far|WARNING: .* ({warnings})")
    (line,) = (
        line for line in done.err.splitlines() if line and not expected.match(line)
    )
    goes_on = f": {tmp_path / out} is not finished, and the same command goes on from what is done"
    assert line == f"interrupted{'' if command[0] == 'export' else goes_on}"
    assert sorted(path.name for path in tmp_path.rglob("*")) == left


@pytest.mark.exhaustive
def test_calibrations_at_once_and_one_that_is_killed(
    workplace: Workplace, star_export: Command, tmp_path: Path
) -> None:
    """Three processes write one file, and the one that is killed leaves it to the others."""
    # sums are kept every 16 images
    images = make_images(tmp_path / "images", classes=2, each=90)
    alone = tmp_path / "alone.safetensors"
    shared = tmp_path / "shared" / "c.safetensors"
    assert star_export("calibrate", *flags_of(workplace, images, alone)).code == 0
    command = ("calibrate", *flags_of(workplace, images, shared), "--quiet")
    # As many threads as here: they decide the last digits.
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
    words = (sys.executable, "-m", "exporter", *command)
    others = [
        subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    killed(SAVE_SUMS, 1, *command)
    for each in others:
        told = each.communicate(timeout=120)
        assert (each.returncode, told[1]) == (0, "")
    assert shared.read_bytes() == alone.read_bytes()
    assert [
        path.name for path in shared.parent.iterdir() if not path.name.startswith(".")
    ] == [shared.name]


@pytest.mark.exhaustive
@pytest.mark.ort
def test_a_compilation_that_is_killed(
    workplace: Workplace,
    star_export: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What has its final name is whole, is no export folder yet, and is used by the next run."""
    out = tmp_path / "out"
    command = (
        "compile",
        *flags_of(workplace, workplace.images, out),
        *PRUNED,
        "--rounds",
        "0",
    )
    killed(SAVE_ONNX, 1, *command)
    onnx.checker.check_model(next(out.glob("*.dense.*.onnx")))
    calibration = (out / "calibration.safetensors").read_bytes()
    assert load_calibration(out / "calibration.safetensors").record.images == 12
    refused = star_export("check", out)
    assert (refused.code, "report.json" in refused.error) == (2, True)
    monkeypatch.setattr("exporter.calibration.calibrate.scored_chunks", none_to_score)
    succeeded(star_export(*command))
    assert (out / "calibration.safetensors").read_bytes() == calibration
    assert read_models(out).pruned.method == "star"
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
    command = (
        "compile",
        *flags_of(workplace, workplace.images, out),
        "--rho",
        "0.8",
        "--scorer",
        "intra",
    )
    command += ("--rounds", "0", "--calibration", str(out / "calibration.safetensors"))
    pruned = read_models(out).pruned.path
    killed(SAVE_ONNX, 2, *command)
    refused = star_export("check", out)
    assert (refused.code, f"{pruned} | got sha256" in refused.error) == (2, True)
    succeeded(star_export(*command))
    assert read_models(out).pruned.schedule.rho == 0.8
    assert (out / "calibration.safetensors").read_bytes() == calibration.read_bytes()
