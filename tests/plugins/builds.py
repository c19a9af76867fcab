"""Where the plugin's source is, and how CMake is told to build it."""

import subprocess
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "plugins/tensorrt"


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
