"""The plugin library, before TensorRT sees it. The stand-ins have its entry points and do nothing."""

from pathlib import Path

import pytest

from exporter.core.base.errors import ArtefactError, UserError
from exporter.engines.plugin_library import checked_library
from tests.core.verify.stand_ins import ENTRIES, compiled, plugin_source


def test_one_of_the_same_major_version(tmp_path: Path) -> None:
    library = compiled(tmp_path, plugin_source(10))
    assert checked_library(library, "10.16.1.11") == library
    with pytest.raises(
        ArtefactError, match=r"headers of TensorRT 10 \| need those of 11"
    ):
        checked_library(library, "11.4.0.106")


def test_a_library_of_somebody_else(tmp_path: Path) -> None:
    with pytest.raises(
        ArtefactError, match=r"undefined symbol.* need the built CdfRetain"
    ):
        checked_library(compiled(tmp_path, ENTRIES), "11.4.0")


def test_no_library(tmp_path: Path) -> None:
    with pytest.raises(ArtefactError) as refused:
        checked_library(tmp_path / "none.so", "11.4.0")
    assert "star-export build --plugin-source DIR" in str(refused.value)
    (tmp_path / "text.so").write_text("text")
    with pytest.raises(ArtefactError, match="need the built CdfRetain library"):
        checked_library(tmp_path / "text.so", "11.4.0")


@pytest.mark.parametrize("version", ["10.0.1", "10.6.0.26"])
def test_a_tensorrt_that_would_parse_the_function_instead(
    tmp_path: Path, version: str
) -> None:
    with pytest.raises(UserError, match=r"need 10\.7 or later.*padded"):
        checked_library(tmp_path / "lib.so", version)
