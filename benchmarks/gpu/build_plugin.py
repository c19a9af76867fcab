"""Build the CdfRetain plugin for the TensorRT that is installed here. The library's path on stdout.

    TENSORRT_INCLUDE_DIR=/path/to/TensorRT/include python benchmarks/gpu/build_plugin.py --out build/gpu/plugin

Needs CMake, g++ and nvcc. Called again, it compiles what has changed. Exit code 2 where it cannot be built.
"""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

from exporter.core.base.errors import UserError
from exporter.core.base.targets import TRT
from exporter.engines.plugin_library import (
    LIBRARY,
    check_version,
    checked_library,
    write_source,
)
from exporter.engines.tool import tool_of

HEADERS = "TENSORRT_INCLUDE_DIR"


def main() -> int:
    """Build it, check it, and return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--out", type=Path, required=True, help="Folder for the source and the library."
    )
    out: Path = parser.parse_args().out.resolve()
    try:
        print(built(out))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except subprocess.CalledProcessError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def built(out: Path) -> Path:
    """Build the library in a folder, and return its path; UserError for what is missing or too old."""
    version = tool_of(TRT).version
    check_version(version)
    headers = os.environ.get(HEADERS)
    if not headers:
        raise UserError(
            HEADERS, "nothing", "the folder of TensorRT's headers, which no wheel has"
        )
    for program in ("cmake", "nvcc"):
        if shutil.which(program) is None:
            raise UserError(
                program, "no such program on PATH", "CMake and the CUDA toolkit"
            )
    write_source(out)
    # What CMake prints goes to stderr: stdout is for the path.
    for words in (
        ("-S", str(out), "-B", str(out / "build")),
        ("--build", str(out / "build"), "--parallel"),
    ):
        subprocess.run(["cmake", *words], check=True, stdout=sys.stderr)
    return checked_library(out / "build" / LIBRARY, version)


if __name__ == "__main__":
    sys.exit(main())
