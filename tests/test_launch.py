"""Commands under `accelerate launch`: two processes leave what one leaves; launchers that do not fit are one line.

tests/test_processes.py does the same work under torchrun.
"""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.commands import BRIEF, Workplace
from tests.launched import obey
from tests.shards import encoded, write_shard

ROOT = Path(__file__).parents[1]
# Whole runs of every verb; tests/test_processes.py shares out the same work in one of each kind.
pytestmark = pytest.mark.exhaustive

PYTHON = [sys.executable, "-m"]
# What docs/finetuning.md gives for processes of one CPU.
ACCELERATE = [
    *PYTHON,
    "accelerate.commands.launch",
    "--multi_gpu",
    "--num_processes",
    "2",
]
ACCELERATE += [
    "--num_machines",
    "1",
    "--mixed_precision",
    "no",
    "--dynamo_backend",
    "no",
]
STAR = ("--method", "star", "--rho", "0.6", "--max-images", "4")
QUICK = ("--preset", "short", "--batch-size", "4", "--recipe", BRIEF, "--epochs")
# Gradients differ by the order of additions, about 1e-9; AdamW divides them by their size, down to its eps of 1e-8.
# So most weights differ by less than 1e-6 after an epoch, and the largest difference met is 1.3e-6.
ROUNDING = 1e-5
# The bias of keys has no gradient but rounding, since softmax ignores it: of that AdamW makes whole steps.
STEPS, LEARNING_RATE = 3, 2e-4


def free_port() -> str:
    """A port that nothing listens on; version 1.0 of Accelerate takes 0 for one."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


def accelerate() -> list[str]:
    """The start of a command for two processes."""
    return [*ACCELERATE, "--main_process_port", free_port()]


def shard(place: Path, total: int, torn: int) -> Path:
    """Images of two classes in turns, of which one is torn."""
    members: dict[str, bytes | str] = {}
    for at in range(total):
        members |= {
            f"{at:02}.cls": str(at % 2),
            f"{at:02}.png": encoded(at)[: 60 if at == torn else None],
        }
    return write_shard(place, members)


def plan(workplace: Workplace, folder: Path, out: Path) -> dict[str, list[str]]:
    """The commands of a run, which write below `out`."""
    train = shard(folder / "train.tar", 13, 5)
    measured = shard(folder / "measured.tar", 17, 4)
    images = ("--images", train, "--eval-images", measured, "--json")
    tuned = ("finetune", *workplace.model, *STAR, *images, *QUICK)
    least = (
        "--method",
        "star",
        "--max-drop",
        "99",
        "--metric",
        "agreement",
        "--rounds",
        "5",
        "--batch",
        "2",
    )
    commands: dict[str, tuple[object, ...]] = {
        "calibrate": (
            "calibrate",
            *workplace.model,
            *images[:2],
            "--out",
            out / "c.safetensors",
            "--json",
        ),
        "finetune": (*tuned, "1", "--out", out / "w.safetensors"),
        "tune": ("tune", *workplace.model, *images, *least, "--out", out / "tune"),
        "whole": (*tuned, "2", "--out", out / "whole.safetensors"),
        "interrupted": (*tuned, "2", "--out", out / "resumed.safetensors"),
        "resumed": (*tuned, "2", "--out", out / "resumed.safetensors"),
    }
    return {name: [str(word) for word in words] for name, words in commands.items()}


Runs = tuple[Path, Path]


@pytest.fixture(scope="module")
def runs(workplace: Workplace, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """What one process leaves of a plan, and what two leave."""
    folder = tmp_path_factory.mktemp("launch")
    one, two = folder / "one", folder / "two"
    for place in (one, two):
        place.mkdir()
        commands = plan(workplace, folder, place)
        if place == one:
            commands = {
                name: commands[name] for name in ("calibrate", "finetune", "tune")
            }
        (place / "plan.json").write_text(json.dumps(commands))
    obey(one / "plan.json", one)
    done = launched([*accelerate(), "-m", "tests.launched", two / "plan.json", two])
    assert done.returncode == 0, done.stderr
    return one, two


def launched(
    command: list[Any], **environment: str
) -> subprocess.CompletedProcess[str]:
    quiet = {"OMP_NUM_THREADS": "1", "STAR_EXPORT_PATIENCE_S": "60", **environment}
    return subprocess.run(
        [str(each) for each in command],
        env={**os.environ, **quiet},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def ended(*commands: subprocess.Popen[str]) -> list[tuple[int, list[str]]]:
    """The exit code of each, and its lines of error."""
    found = [(command, command.communicate(timeout=120)[1]) for command in commands]
    return [
        (
            each.returncode,
            [line for line in text.splitlines() if line.startswith("error: ")],
        )
        for each, text in found
    ]


def told(runs: Runs, name: str) -> Iterator[Any]:
    """What a command printed, by one process and by two."""
    yield from (json.loads((place / f"{name}.json").read_text()) for place in runs)


def test_weights_are_those_of_one_process_but_for_rounding(runs: Runs) -> None:
    one, two = told(runs, "finetune")
    for name in ("dense", "before", "gmacs_pruned", "skipped", "loss_before"):
        assert one[name] == two[name], name
    assert list(two["trained"]["skipped"]) == ["train.tar/05.png"]
    assert (one["trained"]["processes"], two["trained"]["processes"]) == (1, 2)
    ours, theirs = (load_file(place / "w.safetensors") for place in runs)
    assert ours.keys() == theirs.keys()
    for name in ours:
        apart = (ours[name] - theirs[name]).abs()
        if name.endswith("qkv.bias"):
            queries, keys, values = apart.chunk(3)
            assert keys.max() <= STEPS * 2 * LEARNING_RATE, name
            apart = torch.cat([queries, values])
        assert apart.max() < ROUNDING, (name, apart.max())


def test_training_that_was_interrupted_ends_with_the_same_bytes(runs: Runs) -> None:
    two = runs[1]
    assert (two / "resumed.safetensors").read_bytes() == (
        two / "whole.safetensors"
    ).read_bytes()
    assert (
        sorted(
            path.suffix
            for path in two.iterdir()
            if path.suffix in (".ckpt", ".partial")
        )
        == []
    )


def test_a_search_makes_the_same_choice(runs: Runs) -> None:
    one, two = told(runs, "tune")
    assert one["choice"] is not None
    for name in (
        "choice",
        "tried",
        "front",
        "judged",
        "skipped",
        "calibration_skipped",
        "images",
    ):
        assert one[name] == two[name], name
    assert list(two["skipped"]) == ["measured.tar/04.png"]
    assert list(two["calibration_skipped"]) == ["train.tar/05.png"]


def test_accelerate_launch_as_the_docs_give_it(
    runs: Runs, workplace: Workplace, tmp_path: Path
) -> None:
    out = tmp_path / "new" / "c.safetensors"
    flags = ("--images", runs[0].parent / "train.tar", "--out", out, "--json")
    done = launched(
        [*accelerate(), "-m", "exporter", "calibrate", *workplace.model, *flags]
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["record"]["skipped"] == 1
    assert out.read_bytes() == (runs[0] / "c.safetensors").read_bytes()
    assert (
        "accelerate launch --multi_gpu --num_processes 2 -m exporter"
        in (ROOT / "docs/finetuning.md").read_text()
    )


def test_launchers_of_different_sizes_end_in_one_line_each(
    workplace: Workplace, tmp_path: Path
) -> None:
    """The first machine has all processes that it waits for, the second one misses a third."""
    alike = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "LOCAL_RANK": "0"}
    alike |= {"OMP_NUM_THREADS": "1", "STAR_EXPORT_PATIENCE_S": "5"}
    words = [
        "calibrate",
        *workplace.given,
        "--out",
        tmp_path / "c.safetensors",
    ]
    started = [
        subprocess.Popen(
            [*PYTHON, "exporter", *map(str, words)],
            env={**os.environ, **alike, "WORLD_SIZE": size, "RANK": rank},
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, size in (("0", "2"), ("1", "3"))
    ]
    for code, lines in ended(*started):
        assert code == 2
        assert len(lines) == 1
        assert "launch the same number of processes on every machine" in lines[0]
    assert list(tmp_path.iterdir()) == []
