"""The scripts for a machine with a GPU refuse in one line without one, and name verbs and flags that exist."""

import subprocess
import sys
from collections.abc import Callable

import pytest

from benchmarks.gpu import onnxruntime_cuda, tensorrt
from exporter.cli.main import _parser
from exporter.engines.machine import this_machine
from exporter.errors import UserError


def has_gpu() -> bool:
    try:
        this_machine("")
    except UserError:
        return False
    return True


@pytest.mark.parametrize("verbs", [onnxruntime_cuda.verbs, tensorrt.verbs])
def test_the_flags_exist(verbs: Callable[[str], list[list[str]]]) -> None:
    for words in verbs("folder"):
        _parser().parse_args(words)


@pytest.mark.parametrize("name", ["onnxruntime_cuda", "tensorrt"])
def test_one_line_without_a_gpu(name: str) -> None:
    if has_gpu():
        pytest.skip("there is a GPU")
    command = [sys.executable, "-m", f"benchmarks.gpu.{name}", "folder"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "error: GPU | got no libcuda.so.1 | need a GPU with NVIDIA's driver\n"
