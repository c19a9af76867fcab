"""An engine on another machine, or of another model, is refused by what differs."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from exporter.core.base.canonical_json import to_json
from exporter.core.base.errors import ArtefactError
from exporter.core.base.files import sha256_of
from exporter.engines.manifest import (
    Built,
    check_manifest,
    manifest_of,
    manifest_path,
)
from tests.engines.engines import everything, saved_engine

HERE = Built("10.16.1.11", "13.0", "580.65", "NVIDIA A100-SXM4-80GB", "8.0")


def make(folder: Path, **different: object) -> tuple[Path, Path]:
    return saved_engine(folder, **{"built": HERE, **different})


@pytest.mark.parametrize(
    ("here", "message"),
    [
        ({"tensorrt": "11.4.0.106"}, "tensorrt 10.16.1.11 | need tensorrt 11.4.0.106"),
        ({"gpu": "NVIDIA H200"}, "gpu NVIDIA A100-SXM4-80GB | need gpu NVIDIA H200"),
        ({"sm": "9.0"}, "sm 8.0 | need sm 9.0"),
        ({"driver": "575.1", "cuda": "12.9"}, ""),
    ],
)
def test_another_machine(tmp_path: Path, here: dict[str, str], message: str) -> None:
    """Another driver will do."""
    files, machine = make(tmp_path), replace(HERE, **here)
    if not message:
        check_manifest(*files, machine)
        return
    with pytest.raises(ArtefactError, match="builds it again") as refused:
        check_manifest(*files, machine)
    assert message in str(refused.value)


def test_compatible_engines(tmp_path: Path) -> None:
    other = replace(HERE, gpu="NVIDIA L4", sm="8.9")
    check_manifest(*make(tmp_path, hardware="ampere-plus"), other)
    with pytest.raises(ArtefactError, match=r"sm 8\.0"):
        check_manifest(*make(tmp_path, hardware="same-compute-capability"), other)
    later = replace(HERE, tensorrt="10.20.0.1")
    check_manifest(*make(tmp_path, version_compatible=True), later)


@pytest.mark.parametrize("other", ["m.onnx", "m.engine", "lib.so"])
def test_another_model_engine_or_plugin(tmp_path: Path, other: str) -> None:
    files = make(tmp_path, plugin_sha256="0" * 64 if other == "lib.so" else "")
    (tmp_path / other).write_bytes(b"another")
    library = tmp_path / "lib.so" if other == "lib.so" else None
    with pytest.raises(ArtefactError, match=f"built with another {re.escape(other)}"):
        check_manifest(*files, HERE, library)


def test_what_is_missing_or_broken(tmp_path: Path) -> None:
    engine, onnx = make(tmp_path)
    manifest_path(engine).write_text("{}")
    with pytest.raises(
        ArtefactError, match="need the manifest of an engine as star-export"
    ):
        check_manifest(engine, onnx, HERE)
    manifest_path(engine).unlink()
    with pytest.raises(ArtefactError, match=r"m\.json \| got No such file"):
        check_manifest(engine, onnx, HERE)
    engine.unlink()
    with pytest.raises(ArtefactError, match="star-export build FOLDER"):
        check_manifest(engine, onnx, HERE)


def test_a_manifest_has_what_it_was_built_with_and_no_path(tmp_path: Path) -> None:
    onnx, library = tmp_path / "m.onnx", tmp_path / "lib.so"
    onnx.write_bytes(b"model")
    library.write_bytes(b"library")
    settings = replace(everything(tmp_path), batches=(4,))
    told = manifest_of(b"plan", onnx, settings, HERE)
    assert told.onnx == "m.onnx"
    assert told.onnx_sha256 == sha256_of(onnx)
    assert told.plugin_sha256 == sha256_of(library)
    assert (told.built, told.needs_plugin) == (HERE, True)
    assert told.settings == replace(settings, plugin=None)
    assert str(tmp_path) not in to_json(told)
    plain = manifest_of(b"plan", onnx, replace(settings, plugin=None), HERE)
    assert (plain.plugin_sha256, plain.needs_plugin) == ("", False)
