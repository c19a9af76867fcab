"""One command for a GPU: the report, the choice of steps, and one line without a GPU."""

import subprocess
import sys
from pathlib import Path

import pytest

from exporter.core.base.errors import UserError
from exporter.engines.gpu import this_machine
from tests.benchmarks.scripts import FOLDER, script
from tests.exhaustive import also

module = script("gpu/all.py")
Step = script("gpu/steps.py").Step

MACHINE = "NVIDIA H200, SM 9.0, driver 580.159.03, CUDA 13.0"
TABLE = "| batch | img/s |\n|---|---|\n| 1 | 100 |"


def printing(name: str, text: str, code: int = 0) -> object:
    program = (
        f"import sys; print({text!r}); sys.stderr.write('why | not'); sys.exit({code})"
    )
    return Step(name, f"{name} on a GPU", (sys.executable, "-c", program))


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    every = (
        printing("table", TABLE),
        printing("lines", "12 rows, 0 wrong", code=1),
        printing("engines", "", code=2),
        Step("training", "training on CIFAR-10", lacks="--cifar FOLDER"),
    )
    monkeypatch.setattr(module, "steps", lambda request: every)
    return tmp_path / "out"


def run(out: Path, *flags: str, machine: str = MACHINE) -> int:
    return int(
        module.run(module._parser().parse_args(["--out", str(out), *flags]), machine)
    )


def test_the_report_has_every_table_or_says_why_not(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(out) == 1
    report = (out / "report.md").read_text()
    assert report.startswith(f"# {MACHINE}\n\n| step | state | seconds | |\n")
    assert f"## table: table on a GPU\n\n{TABLE}\n" in report
    assert (
        "## lines: lines on a GPU\n\nFailed: why | not\n\n```\n12 rows, 0 wrong\n```\n"
        in report
    )
    assert "## engines: engines on a GPU\n\nNot run: why | not\n" in report
    assert report.endswith(
        "## training: training on CIFAR-10\n\nNot run: needs --cifar FOLDER\n"
    )
    printed = capsys.readouterr().out
    assert "| engines | not run |  | why · not |" in printed
    assert "| training | not run |  | needs --cifar FOLDER |" in printed


def test_chosen_steps_alone(out: Path) -> None:
    assert run(out, "--steps", "table,training") == 0
    report = (out / "report.md").read_text()
    assert "## lines: lines on a GPU\n\nWaiting: no call has come to it yet\n" in report
    with pytest.raises(
        UserError,
        match=r"steps \| got tables \| need of table, lines, engines, training",
    ):
        run(out, "--steps", "tables,table")


def test_a_step_that_time_did_not_suffice_for_is_not_a_success(out: Path) -> None:
    assert run(out, "--steps", "table", "--minutes", "0") == 1
    assert run(out, "--steps", "table") == 0


def test_a_folder_holds_the_results_of_one_gpu(out: Path) -> None:
    run(out)
    run(out, machine="NVIDIA H200, SM 9.0, driver 590.1, CUDA 13.1")
    with pytest.raises(
        UserError,
        match=r"got results of NVIDIA H200, .* need those of NVIDIA A100.*--out",
    ):
        run(out, machine="NVIDIA A100, SM 8.0, driver 580.159.03, CUDA 13.0")


@pytest.mark.parametrize(
    "words", [["all.py"], also(["table.py", "pytorch"])], ids=lambda words: words[0]
)
def test_one_line_without_a_gpu(words: list[str], tmp_path: Path) -> None:
    try:
        this_machine("")
    except UserError:
        pass
    else:
        pytest.skip("there is a GPU")
    script, out = FOLDER / "gpu" / words[0], tmp_path / "out"
    command = [sys.executable, str(script), *words[1:], "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert (
        done.stderr
        == "error: GPU | got no libcuda.so.1 | need a GPU with NVIDIA's driver\n"
    )
    assert not (tmp_path / "out").exists()
