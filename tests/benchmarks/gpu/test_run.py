"""The script for a machine with a GPU refuses in one line without one, and names verbs and flags that exist."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from exporter.cli.main import make_parser
from exporter.errors import UserError
from exporter.runtimes.tensorrt.machine import this_machine

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "benchmarks/gpu/run.py"
sys.path.insert(0, str(SCRIPT.parent))
DEFINED = runpy.run_path(str(SCRIPT))
sys.path.pop(0)


def has_gpu() -> bool:
    try:
        this_machine("")
    except UserError:
        return False
    return True


@pytest.mark.parametrize("runtime", DEFINED["RUNTIMES"])
def test_the_flags_exist(runtime: str) -> None:
    for words in DEFINED["verbs"](runtime, "folder"):
        make_parser().parse_args(words)


@pytest.mark.parametrize(
    "words",
    [["run.py", "tensorrt", "folder"], ["table.py", "pytorch"], ["all.py"]],
    ids=lambda words: words[0],
)
def test_one_line_without_a_gpu(words: list[str]) -> None:
    if has_gpu():
        pytest.skip("there is a GPU")
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'benchmarks'}"}
    command = [sys.executable, str(SCRIPT.with_name(words[0])), *words[1:]]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 2
    assert done.stderr == "error: GPU | got no libcuda.so.1 | need a GPU with NVIDIA's driver\n"
