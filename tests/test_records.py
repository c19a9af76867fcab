"""Records go to canonical JSON and come back the same; what is none says so in one line."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.errors import ArtefactError
from exporter.models.base import PrunableViT
from exporter.records import ModelSpec, Schedule, from_json, load_json, save_json, to_json

FINITE = st.floats(allow_nan=False, allow_infinity=False)
SCHEDULES = st.builds(
    Schedule,
    method=st.just("star"),
    scorer=st.sampled_from(["fused", "intra"]),
    alpha=FINITE,
    rho=st.none() | FINITE,
    anchors=st.just("minmax"),
    rates=st.lists(FINITE).map(tuple),
    keep=st.lists(st.integers(0, 4096)).map(tuple),
    num_patches=st.integers(1, 4096),
    acs=st.none() | st.lists(FINITE).map(tuple),
    seed=st.integers(0),
    inter_sha256=st.text(max_size=8),
)


@given(SCHEDULES)
def test_a_record_comes_back_as_it_was(schedule: Schedule) -> None:
    assert from_json(Schedule, to_json(schedule), source="test") == schedule


def test_nested_records_come_back(tiny_vit: PrunableViT) -> None:
    assert from_json(ModelSpec, to_json(tiny_vit.spec), source="test") == tiny_vit.spec


def test_files_are_the_same_bytes_each_time(tmp_path: Path, tiny_vit: PrunableViT) -> None:
    save_json(tiny_vit.spec, tmp_path / "a.json")
    save_json(replace(tiny_vit.spec), tmp_path / "b.json")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    assert load_json(ModelSpec, tmp_path / "a.json") == tiny_vit.spec


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Expecting value"),
        ("[]", "list where an object belongs"),
        ('{"rates": 3}', "no key"),
        ('{"wings": 3}', "unknown key 'wings'"),
    ],
)
def test_other_text_is_refused(text: str, message: str) -> None:
    with pytest.raises(ArtefactError, match=message):
        from_json(Schedule, text, source="schedule.json")


def test_a_value_of_another_type_is_refused(tiny_vit: PrunableViT) -> None:
    text = to_json(tiny_vit.spec).replace('"num_heads":3', '"num_heads":"three"')
    with pytest.raises(ArtefactError, match="'three' where int belongs"):
        from_json(ModelSpec, text, source="spec")


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match="No such file"):
        load_json(Schedule, tmp_path / "none.json")
