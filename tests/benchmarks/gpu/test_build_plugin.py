"""The plugin is built where TensorRT, its headers and the compilers are; else one line says what is missing."""

import sys
from pathlib import Path

import pytest

from tests.benchmarks.scripts import script
from tests.core.verify.stand_ins import plugin_source, put_on_path
from tests.engines.fake_tensorrt import fake_tool

module = script("gpu/build_plugin.py")
# Stands in for CMake: the first call configures, the second builds a library that has the entry points.
CMAKE = """\
#!/bin/sh
echo "cmake $@"
if [ "$1" = --build ]; then
  echo '%s' | cc -shared -fPIC -x c - -o "$2/libcdf_retain_plugin.so"
else
  test -f "$2/cdf_retain_kernel.cu" && mkdir -p "$4"
fi
"""


def cmake_for(major: int) -> str:
    return CMAKE % plugin_source(major)


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of programs on PATH: CMake and nvcc, beside TensorRT and its headers."""
    programs = tmp_path / "bin"
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    for name, text in (("cmake", cmake_for(10)), ("nvcc", "")):
        put_on_path(name, text, programs, monkeypatch)
    monkeypatch.setenv("TENSORRT_INCLUDE_DIR", "/headers")
    monkeypatch.setattr(module, "tool_of", lambda runtime: fake_tool("10.16.1.11"))
    monkeypatch.setattr(
        sys, "argv", ["build_plugin.py", "--out", str(tmp_path / "plugin")]
    )
    return programs


def test_the_library_is_built_and_its_path_is_all_of_stdout(
    tools: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert module.main() == 0
    told = capfd.readouterr()
    assert told.out == f"{tmp_path / 'plugin/build/libcdf_retain_plugin.so'}\n"
    assert told.err.startswith("cmake -S ")


@pytest.mark.parametrize(
    ("lack", "line"),
    {
        "headers": "TENSORRT_INCLUDE_DIR | got nothing",
        "nvcc": "nvcc | got no such program",
        "new tensorrt": "the CdfRetain plugin | got TensorRT 10.6.0 | need 10.7 or later",
    }.items(),
)
def test_what_is_missing_is_one_line(
    tools: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    lack: str,
    line: str,
) -> None:
    if lack == "headers":
        monkeypatch.delenv("TENSORRT_INCLUDE_DIR")
    elif lack == "nvcc":
        (tools / "nvcc").unlink()
    else:
        monkeypatch.setattr(module, "tool_of", lambda runtime: fake_tool("10.6.0"))
    assert module.main() == 2
    told = capfd.readouterr()
    assert told.err.count("\n") == 1 and line in told.err
    assert not (tmp_path / "plugin").exists()
