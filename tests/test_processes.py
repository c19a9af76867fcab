"""Two processes do what one does: the same calibrations and answers, and the same step; or end with one line."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import accelerate
import pytest
from safetensors.torch import load_file

import exporter.cli.main
import exporter.processes
from exporter.cli import plan
from exporter.core.base.errors import LaunchError
from exporter.processes import Processes, processes
from tests.commands import Command, Workplace, succeeded
from tests.several import work
from tests.vits import make_images

ROOT = Path(__file__).parents[1]
# A launcher that waits for a process that never comes.
ALONE = {
    "WORLD_SIZE": "2",
    "RANK": "0",
    "LOCAL_RANK": "0",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "0",
}
# Processes that still wait for each other by then do so for ever.
HUNG_S = 300


def test_every_process_has_its_own_part() -> None:
    parts = [list(Processes(index, 3).own(range(8))) for index in range(3)]
    assert parts == [[0, 3, 6], [1, 4, 7], [2, 5]]
    assert [Processes(index, 3).main for index in range(3)] == [True, False, False]


def test_different_values_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Processes, "gathered", lambda self, item: [item, "other"])
    with pytest.raises(
        LaunchError,
        match=r"the run \| got 2 different ones \| need one in all processes",
    ):
        Processes(0, 2).same("the run", "x")


def test_what_joining_writes_to_stdout_goes_to_stderr(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def joined(**_: object) -> SimpleNamespace:
        # as C++ writes: not through sys.stdout
        os.write(1, b"[Gloo] Rank 0 is connected")
        return SimpleNamespace(num_processes=1)

    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(accelerate, "PartialState", joined)
    processes.cache_clear()
    with pytest.raises(LaunchError, match=r"WORLD_SIZE .* use accelerate launch"):
        processes()
    os.write(1, b"result")
    out, err = capfd.readouterr()
    assert out == "result"
    assert "[Gloo]" in err


def test_two_processes_give_the_result_of_one(tmp_path: Path) -> None:
    images = make_images(tmp_path / "images", classes=7, each=2)
    (images / "class_3" / "0.png").write_bytes(b"no image")
    one = tmp_path / "one"
    two = tmp_path / "two"
    work(images, one)
    launcher = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc_per_node",
        "2",
        "-m",
        "tests.several",
    ]
    done = subprocess.run(
        [*launcher, images, two],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=HUNG_S,
    )
    assert done.returncode == 0, done.stderr
    assert "still runs: " in done.stderr
    assert "gloo" not in done.stderr
    for name in ("inter.safetensors", "acs.safetensors", "evaluation.json"):
        assert (one / name).read_bytes() == (two / name).read_bytes(), name
    ours, theirs = (load_file(place / "gradients.safetensors") for place in (one, two))
    assert ours.keys() == theirs.keys()
    largest = max(float((ours[name] - theirs[name]).abs().max()) for name in ours)
    assert largest < 1e-6, largest
    assert max(float(each.abs().max()) for each in ours.values()) > 1e-3
    assert sorted(path.name for path in two.iterdir()) == sorted(
        path.name for path in one.iterdir()
    )


def test_a_process_that_does_not_come_is_one_line(
    workplace: Workplace, tmp_path: Path
) -> None:
    flags = [
        *workplace.given,
        "--out",
        tmp_path / "c.safetensors",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "exporter", "calibrate", *map(str, flags)],
        env={
            **os.environ,
            **ALONE,
            "STAR_EXPORT_PATIENCE_S": "1",
            "OMP_NUM_THREADS": "1",
        },
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    (line,) = [each for each in done.stderr.splitlines() if each.startswith("error: ")]
    assert "processes | got no answer from all of them" in line
    assert "launch the same number of processes on every machine" in line
    assert "Traceback" not in done.stderr


def test_a_launcher_without_addresses_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In place of Accelerate, which sets variables of this process before it fails."""

    def state(**_: object) -> None:
        raise ValueError("MASTER_ADDR expected, but not set")

    monkeypatch.setattr(accelerate, "PartialState", state)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(
        LaunchError, match=r"got no answer from all of them \(MASTER_ADDR"
    ):
        processes.__wrapped__()


@pytest.mark.parametrize("patience", ["", "soon", "0", "-1", "nan", "1e300"])
def test_patience_is_a_number_of_seconds(
    monkeypatch: pytest.MonkeyPatch, patience: str
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("STAR_EXPORT_PATIENCE_S", patience)
    with pytest.raises(
        LaunchError,
        match=r"STAR_EXPORT_PATIENCE_S \| got .* need a number of seconds above 0",
    ):
        processes.__wrapped__()


def test_verbs_that_one_process_does_refuse_several(
    star_export: Command, workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporter.cli.main, "processes", lambda: Processes(0, 2))
    done = star_export("plan", *workplace.model, "--rho", "0.7")
    assert done.code == 2
    assert (
        "error: plan | got 2 processes | need one | tune, eval, finetune, calibrate take several"
        in done.err
    )


def test_only_the_main_process_prints(
    star_export: Command, workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "SPREAD", True, raising=False)
    for index in range(2):
        monkeypatch.setattr(
            exporter.cli.main, "processes", lambda index=index: Processes(index, 2)
        )
        done = succeeded(
            star_export("plan", *workplace.model, "--rho", "0.7", "--json")
        )
        assert bool(done.out) == (index == 0)


def test_each_process_takes_whole_batches() -> None:
    shares = [list(Processes(index, 2).share(range(5), 2)) for index in range(2)]
    assert shares == [[0, 1, 2, 3], [4]]
