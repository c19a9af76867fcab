"""A library of ours, before a runtime sees it."""

from pathlib import Path

import pytest

from exporter.errors import ArtefactError
from exporter.runtimes.native_library import opened_library
from tests.runtimes.stand_ins import compiled


def test_its_entries_are_there(tmp_path: Path) -> None:
    library = compiled(tmp_path, "int one(void) { return 1; } int two(void) { return 2; }")
    assert opened_library(library, ("one", "two"), "thing", "make it").two() == 2
    with pytest.raises(ArtefactError, match=r"without its entry points \| need the thing \| make it"):
        opened_library(library, ("one", "three"), "thing", "make it")


def test_no_library(tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match=r"no such file \| need the built thing \| make it"):
        opened_library(tmp_path / "none.so", (), "thing", "make it")
    (tmp_path / "text.so").write_text("text")
    with pytest.raises(ArtefactError, match=r"a library that loads \| make it"):
        opened_library(tmp_path / "text.so", (), "thing", "make it")
