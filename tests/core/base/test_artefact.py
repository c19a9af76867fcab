"""A lowered file's metadata: written, read back, and refused in one line where there is none."""

import re
from dataclasses import replace
from itertools import cycle, product
from pathlib import Path

import pytest

import exporter
from exporter.core.base.artefact import (
    from_metadata,
    read_lowered,
    read_pair,
    to_metadata,
)
from exporter.core.base.errors import ArtefactError
from exporter.core.base.records import Pair
from exporter.core.base.targets import ONNXRUNTIME, OPENVINO, TARGETS, TENSORRT, Target
from exporter.core.base.vocabulary import InputKind, Layout, Method
from tests.folders import artefacts, write_folder
from tests.tiny_onnx import linear_classifier

PLAIN = artefacts().pruned


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


KINDS = [*product(InputKind, (Method.STAR, Method.A_STAR))]


@pytest.mark.parametrize(
    ("target", "kind"),
    [*zip(TARGETS.values(), cycle(KINDS))],
    ids=lambda each: getattr(each, "name", None),
)
def test_what_is_written_is_read_back(
    tmp_path: Path, target: Target, kind: tuple[InputKind, Method]
) -> None:
    input_kind, method = kind
    made = artefacts(target, method=method, input_kind=input_kind)
    for artefact in (made.dense, made.pruned):
        path = written(
            tmp_path / "m.onnx", linear_classifier(metadata=to_metadata(artefact))
        )
        # The layout is how a-STAR's tokens lie: other schedules have none to tell.
        expected = (
            artefact
            if artefact.schedule.adaptive
            else replace(artefact, layout=Layout.SHRINKING)
        )
        assert read_lowered(path) == expected


def test_the_methods_of_both_files() -> None:
    made = artefacts()
    assert (made.dense.method, made.pruned.method) == ("dense", "star")
    assert (made.dense.prunes, made.pruned.prunes) == (False, True)
    adaptive = artefacts(method=Method.A_STAR).pruned
    assert [
        replace(adaptive, layout=layout).follows_image
        for layout in (Layout.PADDED, Layout.PACKED, Layout.SHRINKING)
    ] == [False, True, True]
    assert not made.pruned.follows_image


WRITTEN = rf"need the file as star-export {re.escape(exporter.__version__)} wrote it"


@pytest.mark.parametrize(
    ("key", "value", "got"),
    [
        ("target", None, "no 'target'"),  # version 0.1 said less
        ("target", "abacus", "'abacus'"),
        ("schedule", "{", "truncated"),
        ("model", "null", "Expected"),
        ("layout", "folded", "'folded'"),
    ],
)
def test_whatever_is_wrong_with_our_metadata_is_one_sentence(
    key: str, value: str | None, got: str
) -> None:
    metadata = to_metadata(PLAIN) | {f"star_export.{key}": value or ""}
    if value is None:
        del metadata[f"star_export.{key}"]
    line = rf"^m\.onnx \| got [^|]*{got}[^|]* \| {WRITTEN} \| make it again$"
    with pytest.raises(ArtefactError, match=line):
        from_metadata(metadata, "m.onnx")


def test_a_torn_file_is_refused_wherever_it_ends(tmp_path: Path) -> None:
    """Behind a whole field more of them may be missing: then there is no metadata of ours, or not all of it."""
    whole = linear_classifier(metadata=to_metadata(PLAIN))
    for size in range(0, len(whole), 7):
        with pytest.raises(ArtefactError):
            read_lowered(written(tmp_path / "m.onnx", whole[:size]))


def test_a_pair_is_of_one_model(tmp_path: Path) -> None:
    files = write_folder(tmp_path)
    pair = read_pair(files)
    assert (pair.dense.path, pair.pruned.path) == (files.dense, files.pruned)
    with pytest.raises(
        ArtefactError, match=r"got star before star \| need the dense model"
    ):
        read_pair(Pair(files.pruned, files.pruned))
    with pytest.raises(ArtefactError, match="got dense before dense"):
        read_pair(Pair(files.dense, files.dense))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights_sha256": "def"}, "with other weights or shapes"),
        ({"spec": replace(PLAIN.spec, dim=7)}, "with other weights or shapes"),
        (
            {"target": OPENVINO},
            f"models? for {OPENVINO.name} .* one for {ONNXRUNTIME.name}",
        ),
        ({"target": TENSORRT}, TENSORRT.name),
        ({"input_kind": InputKind.UINT8}, "takes uint8 .* takes float32"),
    ],
)
def test_a_dense_file_of_something_else(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    files = write_folder(tmp_path)
    other = replace(artefacts().dense, **change)  # type: ignore[arg-type]
    files.dense.write_bytes(linear_classifier(metadata=to_metadata(other)))
    with pytest.raises(ArtefactError, match=message):
        read_pair(files)
