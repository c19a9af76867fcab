"""Where the plugin's source is, how CMake is told to build it, and what is built of it once for all processes."""

import hashlib
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.disk_cache import shared_folder

SOURCE = Path(__file__).parents[2] / "plugins/tensorrt"
FAKE_CUDA = Path(__file__).parent / "cuda_on_cpu"


def built(name: str, make: Callable[[Path], object]) -> Path:
    """The folder of what `make` builds of these sources."""
    total = hashlib.sha256()
    for folder in (SOURCE, FAKE_CUDA):
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            total.update(path.name.encode() + path.read_bytes())
    return shared_folder(f"{name}.{total.hexdigest()[:32]}", make)


def configure(folder: Path, headers: Path | None) -> str:
    """Configure a build; what CMake said."""
    command = [
        "cmake",
        "-S",
        str(SOURCE),
        "-B",
        str(folder),
        f"-DTENSORRT_INCLUDE_DIR={headers or ''}",
    ]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
