"""The library of operators: built by what is there, found where it is put, checked before it is registered."""

from pathlib import Path

import pytest

from exporter.errors import ArtefactError, OutputError, UserError
from exporter.runtimes.onnxruntime.operator_library import (
    LIBRARY,
    build_library,
    checked_library,
    lacks_operators,
    library_place,
)
from tests.runtimes.stand_ins import compiled

ENTRIES = "void RegisterCustomOps(void) {} int starOpsLeastRuntime(void) { return 25; }"


def test_it_is_in_the_cache_unless_it_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("STAR_OPS_LIBRARY", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert library_place() == Path.home() / ".cache/star-export" / LIBRARY
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert library_place() == tmp_path / "star-export" / LIBRARY
    monkeypatch.setenv("STAR_OPS_LIBRARY", "ops.so")
    assert library_place() == Path("ops.so")


def test_one_that_this_runtime_serves(tmp_path: Path) -> None:
    library = compiled(tmp_path, ENTRIES)
    assert checked_library(library, "1.31.1") == library
    assert checked_library(library, "1.25.0") == library
    told = (
        r"got ONNX Runtime 1\.24\.4 \| need ONNX Runtime >= 1\.25 for it \| or an export with --target onnxr"
    )
    with pytest.raises(ArtefactError, match=told):
        checked_library(library, "1.24.4")


def test_one_of_before_is_built_again(tmp_path: Path) -> None:
    before = compiled(tmp_path, ENTRIES.replace("LeastRuntime", "ApiVersion"))
    with pytest.raises(ArtefactError, match=r"star-export ops build"):
        checked_library(before, "1.32.0")


def test_what_onnx_runtime_says_without_it() -> None:
    assert lacks_operators("Fatal error: star:ChooseTopK(-1) is not a registered function/op")
    assert not lacks_operators("Fatal error: com.other:ChooseTopK(-1) is not a registered function/op")
    assert not lacks_operators("star.onnx failed: protobuf parsing failed")


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match=r"a C\+\+ compiler \| got none of c\+\+, g\+\+, clang\+\+"):
        build_library(tmp_path / LIBRARY)
    monkeypatch.setenv("CXX", "abacus -O3")
    with pytest.raises(UserError, match=r"CXX \| got abacus -O3"):
        build_library(tmp_path / LIBRARY)


def compiler(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A compiler that is a script, and headers for it."""
    path = folder / "cxx"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("CXX", str(path))
    (folder / "onnxruntime_c_api.h").touch()
    monkeypatch.setenv("ONNXRUNTIME_INCLUDE_DIR", str(folder))


def test_no_headers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compiler(tmp_path, monkeypatch, "exit 0")
    for folder, got in (("", "nothing"), ("/none", "no onnxruntime_c_api.h in '/none'")):
        monkeypatch.setenv("ONNXRUNTIME_INCLUDE_DIR", folder)
        with pytest.raises(UserError) as caught:
            build_library(tmp_path / LIBRARY)
        assert str(caught.value).startswith(f"ONNXRUNTIME_INCLUDE_DIR | got {got} | need the folder")


def test_a_source_that_does_not_compile_is_its_first_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    compiler(tmp_path, monkeypatch, 'echo "In file x.h:" >&2; echo "x.h:3: error: too old" >&2; exit 1')
    with pytest.raises(UserError, match=r"got x\.h:3: error: too old \| need a C\+\+17 compiler"):
        build_library(tmp_path / "out" / LIBRARY)
    assert not list((tmp_path / "out").iterdir())


def test_the_compiler_is_told_the_sources_and_both_folders(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    compiler(tmp_path, monkeypatch, 'for last; do :; done; echo "$@" > "$last"')
    build_library(tmp_path / "out" / LIBRARY)
    words = (tmp_path / "out" / LIBRARY).read_text().split()
    assert {"-std=c++17", "-ffp-contract=off", f"-I{tmp_path}"} <= set(words)
    assert any(word.endswith("bundled/onnxruntime/library.cpp") for word in words)
    assert any(word.startswith("-I") and word.endswith("bundled/tensorrt") for word in words)


def test_a_place_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compiler(tmp_path, monkeypatch, "exit 0")
    (tmp_path / "taken").touch()
    with pytest.raises(OutputError, match="taken"):
        build_library(tmp_path / "taken" / LIBRARY)


def test_what_is_built_is_what_is_checked(operator_library: Path) -> None:
    assert checked_library(operator_library, "1.25.0") == operator_library
    with pytest.raises(ArtefactError, match=r"1\.24\.4"):
        checked_library(operator_library, "1.24.4")
