"""The plugin library, before TensorRT sees it. The stand-ins have its entry points and do nothing."""

import shutil
import subprocess
from pathlib import Path

import pytest

from exporter.errors import ArtefactError, UserError
from exporter.runtimes.tensorrt.plugin_library import checked_library

ENTRIES = "void getCreators(void) {} void setLoggerFinder(void) {}"


def compiled(folder: Path, source: str) -> Path:
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    (folder / "stand_in.c").write_text(source + "\n")
    library = folder / "libstand_in.so"
    subprocess.run(["gcc", "-shared", "-fPIC", folder / "stand_in.c", "-o", library], check=True)
    return library


def test_one_of_the_same_major_version(tmp_path: Path) -> None:
    library = compiled(tmp_path, f"{ENTRIES} int cdfRetainTensorRtMajor(void) {{ return 10; }}")
    assert checked_library(library, "10.16.1.11") == library
    with pytest.raises(ArtefactError, match=r"headers of TensorRT 10 \| need those of 11"):
        checked_library(library, "11.4.0.106")


def test_a_library_of_somebody_else(tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match="without its entry points"):
        checked_library(compiled(tmp_path, ENTRIES), "11.4.0")


def test_no_library(tmp_path: Path) -> None:
    with pytest.raises(ArtefactError) as refused:
        checked_library(tmp_path / "none.so", "11.4.0")
    assert "star-export plugin --out DIR" in str(refused.value)
    (tmp_path / "text.so").write_text("text")
    with pytest.raises(ArtefactError, match="a library that loads"):
        checked_library(tmp_path / "text.so", "11.4.0")


def test_a_tensorrt_without_such_plugins(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="padded"):
        checked_library(tmp_path / "lib.so", "8.6.0")
