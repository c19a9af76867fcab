"""Small libraries in C that stand for compiled ones of ours."""

import shutil
import subprocess
from pathlib import Path

import pytest


def compiled(folder: Path, source: str) -> Path:
    """The library of a source in C; skips the test where there is no compiler."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    (folder / "stand_in.c").write_text(source + "\n")
    library = folder / "libstand_in.so"
    subprocess.run(["gcc", "-shared", "-fPIC", folder / "stand_in.c", "-o", library], check=True)
    return library
