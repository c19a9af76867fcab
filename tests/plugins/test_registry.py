"""TensorRT's own plugin registry loads the library. The lean runtime's is enough, and needs no GPU."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

LEAN = "tensorrt_lean_bindings"
INSTALL = "pip install --no-deps tensorrt-lean-cu13-libs tensorrt-lean-cu13-bindings"


@pytest.mark.trt
def test_the_registry_loads_the_library(plugin_library: Path) -> None:
    if not any(importlib.util.find_spec(name) for name in ("tensorrt", LEAN)):
        pytest.skip(f"needs TensorRT or its lean runtime: {INSTALL}")
    command = [
        sys.executable,
        "-m",
        "tests.plugins.registry_check",
        str(plugin_library),
    ]
    done = subprocess.run(
        command,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
