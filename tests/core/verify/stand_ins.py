"""Small libraries and programs that stand for compiled ones."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ENTRIES = "void getCreators(void) {} void setLoggerFinder(void) {}"


def compiled(folder: Path, source: str) -> Path:
    """The library of a source in C; skips the test where there is no compiler."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    (folder / "stand_in.c").write_text(source + "\n")
    library = folder / "libstand_in.so"
    subprocess.run(
        ["gcc", "-shared", "-fPIC", folder / "stand_in.c", "-o", library], check=True
    )
    return library


def plugin_source(major: int) -> str:
    """A library with the entry points of the plugin's, built with the headers of a version of TensorRT."""
    return f"{ENTRIES} int cdfRetainTensorRtMajor(void) {{ return {major}; }}"


def put_on_path(
    name: str, script: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Put a program, as a script of the shell unless it says another interpreter, first on PATH."""
    program = folder / name
    program.parent.mkdir(exist_ok=True)
    program.write_text(script if script.startswith("#!") else f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
