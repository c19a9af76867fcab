"""Builds for the plugin's tests, once per session, by the commands of its README."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.plugins.builds import SOURCE, built, configure
from tests.plugins.implementations import HostLibrary


@pytest.fixture(scope="session")
def host_library() -> HostLibrary:
    """The row logic, for a machine without CUDA."""
    _need("g++")
    command = "g++ -std=c++17 -O3 -ffp-contract=off -Wall -Wextra -Werror -fPIC -shared cdf_retain_host.cpp -o"

    def make(folder: Path) -> None:
        library = folder / "libcdf_retain_host.so"
        subprocess.run([*command.split(), str(library)], cwd=SOURCE, check=True)

    return HostLibrary(built("host", make) / "libcdf_retain_host.so")


@pytest.fixture(scope="session")
def tensorrt_headers() -> Path:
    """The folder of TensorRT's headers: no wheel holds them."""
    folder = Path(os.environ.get("TENSORRT_INCLUDE_DIR", ""))
    if not (folder / "NvInferRuntime.h").is_file():
        pytest.skip("needs TensorRT's headers: set TENSORRT_INCLUDE_DIR")
    return folder


@pytest.fixture(scope="session")
def plugin_library(
    tensorrt_headers: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The plugin, warnings being errors. It holds machine code of all its GPUs, though none need be here."""
    _need("cmake", "nvcc")
    folder = tmp_path_factory.mktemp("plugin")
    configure(folder, tensorrt_headers)
    for target in ("all", "plugin_host"):
        subprocess.run(
            ["cmake", "--build", str(folder), "--target", target],
            check=True,
            capture_output=True,
        )
    return folder / "libcdf_retain_plugin.so"


def _need(*programs: str) -> None:
    missing = [name for name in programs if shutil.which(name) is None]
    if missing:
        pytest.skip(f"needs {' and '.join(missing)}")
