"""Fields of protobuf's messages, read as onnx writes them."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import StringStringEntryProto, TensorProto

from exporter.formats.protobuf import SIZED, VARINT, fields, text_of

NAME, DATA_TYPE, KEY, VALUE = 8, 2, 1, 2


@given(st.text(min_size=1), st.text(min_size=1))
def test_texts(key: str, value: str) -> None:
    content = StringStringEntryProto(key=key, value=value).SerializeToString()
    file = io.BytesIO(content)
    found = {
        number: text_of(file, size) for number, kind, size in fields(file, len(content)) if kind == SIZED
    }
    assert found == {KEY: key, VALUE: value}


@given(st.integers(0, 2**31 - 1), st.text(min_size=1), st.binary(max_size=300))
def test_numbers_and_what_is_passed_over(data_type: int, name: str, raw: bytes) -> None:
    content = TensorProto(data_type=data_type, name=name, raw_data=raw, float_data=[0.5]).SerializeToString()
    found = {number: (kind, value) for number, kind, value in fields(io.BytesIO(content), len(content))}
    assert found[DATA_TYPE] == (VARINT, data_type)
    assert found[NAME] == (SIZED, len(name.encode()))


@given(st.integers(1, 19))
def test_a_torn_message(cut: int) -> None:
    content = TensorProto(data_type=1, name="a name of a tensor").SerializeToString()
    with pytest.raises(ValueError, match="torn"):
        list(fields(io.BytesIO(content), len(content) - cut))
