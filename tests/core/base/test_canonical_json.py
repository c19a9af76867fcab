"""Records go to canonical JSON and come back the same; what is none says so in one line."""

import json
import os
import re
import types
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

from exporter.calibration.record import CalibrationRecord
from exporter.calibration.settings import CalibrationSettings
from exporter.core.base.canonical_json import from_json, read_json, to_json
from exporter.core.base.errors import ArtefactError
from exporter.core.base.records import (
    ModelSpec,
    Schedule,
)
from exporter.core.vit.protocol import PrunableViT
from exporter.engines.manifest import EngineManifest
from exporter.engines.settings import BuildSettings
from exporter.models.listed import ModelList
from tests.examples import FEW

FINITE = st.floats(allow_nan=False, allow_infinity=False)
TEXT = st.text(max_size=8)
MACS = st.integers(0, 2**62)


@pytest.mark.parametrize("text", ['{"a": 1, "a": 1}', '[{"b": {"a": 1, "a": 2}}]'])
def test_a_key_that_stands_twice_in_an_object_is_refused(
    text: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match="the key 'a' twice"):
        read_json(path)


def filled(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a type: numbers that JSON has, and one or two items in each tuple."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        limits = next(part for part in parts if isinstance(part, Meta))
        return limited(parts[0], limits)
    if origin in (Union, types.UnionType):
        return st.one_of(*map(filled, parts))
    if origin is tuple and parts[1:] == (...,):
        return st.lists(filled(parts[0]), min_size=1, max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*map(filled, parts))
    if origin in (dict, Mapping):
        return st.dictionaries(*map(filled, parts), max_size=2)
    if kind in SETTINGS:
        return st.sampled_from(SETTINGS[kind])
    if isinstance(kind, type) and is_dataclass(kind):
        hints = get_type_hints(kind, include_extras=True)
        return st.builds(
            kind, **{field.name: filled(hints[field.name]) for field in fields(kind)}
        )
    plain = {int: MACS, float: FINITE, str: TEXT}
    return plain[kind] if kind in plain else st.from_type(kind)


def limited(kind: Any, limits: Meta) -> st.SearchStrategy[Any]:
    if kind is int:
        return st.integers(limits.ge, limits.le)  # type: ignore[arg-type]
    if kind is float:
        least = limits.ge if limits.gt is None else limits.gt
        most = limits.le if limits.lt is None else limits.lt
        above, below = limits.gt is not None, limits.lt is not None
        return st.floats(least, most, exclude_min=above, exclude_max=below)
    return filled(kind)


SETTINGS: dict[Any, tuple[Any, ...]] = {
    BuildSettings: (
        BuildSettings(batches=(1, 8), hardware="ampere-plus", optimization_level=3),
        BuildSettings(runtime="tensorrt-rtx", sm=(86, 120), tf32=True, any_batch=True),
    ),
    CalibrationSettings: (
        CalibrationSettings(max_images=None, gamma=2),
        CalibrationSettings(
            max_images="auto", relevance=False, seed=7, dtype="float32"
        ),
    ),
}
READ = (Schedule, ModelSpec, CalibrationRecord, EngineManifest, ModelList)


@pytest.mark.parametrize("kind", READ, ids=lambda kind: kind.__name__)
def test_every_record_comes_back_as_it_was(kind: type) -> None:
    """From the bytes that earlier versions wrote: sorted keys, no spaces, Python's shortest numbers."""

    @FEW
    @given(filled(kind))
    def comes_back(record: Any) -> None:
        text = to_json(record)
        assert text == json.dumps(
            json.loads(json.dumps(asdict(record))),
            sort_keys=True,
            separators=(",", ":"),
            ensure_ascii=False,
        )
        assert from_json(kind, text, source="test") == record

    comes_back()


def test_an_unknown_key_is_refused_however_deep_it_lies(tiny_vit: PrunableViT) -> None:
    for text in (
        to_json(tiny_vit.spec).replace('"crop_mode":', '"wings":2,"crop_mode":'),
        to_json(tiny_vit.spec).replace('"dim":', '"wings":2,"dim":'),
        to_json(tiny_vit.spec).replace(
            '"mlp_token_macs":', '"wings":2,"mlp_token_macs":'
        ),
    ):
        with pytest.raises(ArtefactError, match="unknown key 'wings'"):
            from_json(ModelSpec, text, source="test")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "truncated"),
        ("[]", "Expected `object`, got `array`"),
        ('{"rates": 3}', "Expected `array`, got `int` - at `$.rates`"),
        ('{"method": "star"}', "missing required field `scorer`"),
        ('{"rho": NaN}', "malformed"),
        ('{"rho": 1e999}', "out of range"),
        (f'{{"seed": {"9" * 5000}}}', "out of range"),
        ("[" * 100_000, "Expected `object`, got `array`"),
        ('{"rho":' * 100_000, "recursion"),
    ],
)
def test_other_text_is_refused(text: str, message: str) -> None:
    with pytest.raises(ArtefactError, match=re.escape(message)) as error:
        from_json(Schedule, text, source="schedule.json")
    assert len(str(error.value).splitlines()) == 1


@dataclass(frozen=True)
class Named:
    skipped: dict[str, str]


@given(st.dictionaries(st.binary(max_size=6), st.binary(max_size=6)))
def test_names_of_any_bytes_come_back_from_a_file_that_is_utf8(
    names: dict[bytes, bytes],
) -> None:
    record = Named(
        {os.fsdecode(name): os.fsdecode(reason) for name, reason in names.items()}
    )
    text = to_json(record)
    assert from_json(Named, text.encode(), source="test") == record
    assert json.loads(text) == {"skipped": record.skipped}


def test_half_a_character_is_no_byte() -> None:
    with pytest.raises(ArtefactError, match="surrogate"):
        from_json(Named, '{"skipped": {"\\ud800": "x"}}', source="test")
