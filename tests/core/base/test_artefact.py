"""A lowered file's metadata: written, read back, and refused in one line where there is none."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import exporter
from exporter.core.base.artefact import (
    REQUIRED,
    from_metadata,
    read_lowered,
    read_pair,
    to_metadata,
)
from exporter.core.base.canonical_json import to_json
from exporter.core.base.errors import ArtefactError
from exporter.core.base.records import Pair
from exporter.core.base.targets import ONNXRUNTIME, OPENVINO, TARGETS, TENSORRT, Target
from exporter.core.base.vocabulary import InputKind, Layout, Method
from tests.folders import artefacts, write_folder
from tests.tiny_onnx import linear_classifier

# One folder serves many examples: each writes its file anew.
MANY = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200
)
PLAIN = artefacts().pruned


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("target", TARGETS.values(), ids=lambda target: target.name)
@pytest.mark.parametrize("input_kind", list(InputKind))
@pytest.mark.parametrize("method", [Method.STAR, Method.A_STAR])
def test_what_is_written_is_read_back(
    tmp_path: Path, target: Target, input_kind: InputKind, method: Method
) -> None:
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


@pytest.mark.parametrize("missing", REQUIRED)
def test_a_file_of_an_earlier_version_is_one_line(missing: str) -> None:
    """Version 0.1 said less."""
    metadata = to_metadata(PLAIN)
    del metadata[f"star_export.{missing}"]
    metadata["star_export.version"] = "0.0.9"
    with pytest.raises(ArtefactError) as error:
        from_metadata(metadata, "old.onnx")
    assert str(error.value).startswith(
        "old.onnx | got a file of star-export 0.0.9 | need one of"
    )
    assert exporter.__version__ in str(error.value) and "compile it again" in str(
        error.value
    )
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("field", ["rates", "keep", "num_patches"])
def test_a_schedule_of_another_model_is_refused(field: str) -> None:
    schedule = PLAIN.schedule
    more: dict[str, Any] = {
        "rates": (*schedule.rates, 0.5),
        "keep": (*schedule.keep, 1),
        "num_patches": 99,
    }
    forged = replace(PLAIN, schedule=replace(schedule, **{field: more[field]}))
    with pytest.raises(
        ArtefactError, match=r"m\.onnx \| got a schedule of .* need one for \d+ layers"
    ):
        from_metadata(to_metadata(forged), "m.onnx")


@pytest.mark.parametrize("key", ["method", "schedule_sha256", "preprocessing"])
@pytest.mark.parametrize("value", ["{", "dense"])
def test_what_other_programs_read_is_that_of_the_model(key: str, value: str) -> None:
    with pytest.raises(ArtefactError, match=r"^m\.onnx \| got "):
        from_metadata({**to_metadata(PLAIN), f"star_export.{key}": value}, "m.onnx")


def test_another_preprocessing_than_the_models_is_refused() -> None:
    other = to_json(replace(PLAIN.spec.preprocessing, crop_pct=0.5))
    with pytest.raises(ArtefactError, match="metadata that was edited: preprocessing"):
        from_metadata(
            {**to_metadata(PLAIN), "star_export.preprocessing": other}, "m.onnx"
        )


def test_a_torn_file_is_refused_wherever_it_ends(tmp_path: Path) -> None:
    """Behind a whole field more of them may be missing: then there is no metadata of ours, or not all of it."""
    whole = linear_classifier(metadata=to_metadata(PLAIN))
    for size in range(0, len(whole), 7):
        with pytest.raises(ArtefactError):
            read_lowered(written(tmp_path / "m.onnx", whole[:size]))


@MANY
@given(st.binary(max_size=200))
@example(b"\x72\x00")
@example(b"\xff" * 12)
def test_random_bytes_are_never_ours(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(ArtefactError):
        read_lowered(written(tmp_path / "m.onnx", content))


@MANY
@given(
    st.lists(
        st.tuples(st.integers(0, 10**6), st.binary(min_size=1, max_size=8)),
        min_size=1,
        max_size=3,
    )
)
def test_a_damaged_file_is_read_or_refused(
    tmp_path: Path, damage: list[tuple[int, bytes]]
) -> None:
    content = bytearray(linear_classifier(metadata=to_metadata(PLAIN)))
    for where, what in damage:
        at = where % len(content)
        content[at : at + len(what)] = what
    try:
        read_lowered(written(tmp_path / "m.onnx", bytes(content)))
    except ArtefactError as error:
        assert "\n" not in str(error)


def test_a_pair_is_of_one_model(tmp_path: Path) -> None:
    files = write_folder(tmp_path)
    pair = read_pair(files)
    assert (pair.dense.path, pair.pruned.path) == (files.dense, files.pruned)
    with pytest.raises(
        ArtefactError, match=r"got a pruned model \| need the dense one"
    ):
        read_pair(Pair(files.pruned, files.pruned))
    with pytest.raises(ArtefactError, match="drops no patch"):
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


def test_a_file_in_its_targets_precision(tmp_path: Path) -> None:
    made = artefacts(TARGETS["openvino-bf16"]).pruned
    path = written(tmp_path / "m.onnx", linear_classifier(metadata=to_metadata(made)))
    assert read_lowered(path).target.name == "openvino-bf16"
