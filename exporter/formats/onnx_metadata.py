"""Read what an ONNX file says of itself: metadata, inputs, and more, without onnx or any runtime."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import numpy as np

from exporter.errors import ArtefactError, reason_of
from exporter.files import regular

# Wire types; the sizes of those that have one size.
VARINT, SIZED = 0, 2
FIXED_BYTES = {1: 8, 5: 4}

TORN = "no ONNX model, or a torn one"


def _fields(file: BinaryIO, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield each field up to `end`: its number, its wire type, and its value, or the size of what follows in bytes.

    The caller may read what follows, or not.

    Raises:
        ValueError: The message is torn, or is none.
    """
    while file.tell() < end:
        number, kind = divmod(_varint(file), 8)
        if kind == VARINT:
            yield number, kind, _varint(file)
            continue
        if kind != SIZED and kind not in FIXED_BYTES:
            raise ValueError("no ONNX model")
        size = _varint(file) if kind == SIZED else FIXED_BYTES[kind]
        after = file.tell() + size
        if after > end:
            raise ValueError(TORN)
        yield number, kind, size
        file.seek(after)
    if file.tell() != end:
        raise ValueError(TORN)


def _text_of(file: BinaryIO, size: int) -> str:
    """Read a text of so many bytes; ValueError if it is none."""
    return file.read(size).decode("utf-8")


def _varint(file: BinaryIO) -> int:
    """Read a varint: seven bits per byte, lowest first; at most 64 bits."""
    number = 0
    for shift in range(0, 70, 7):
        byte = file.read(1)
        if not byte:
            raise ValueError(TORN)
        number |= (byte[0] & 127) << shift
        if byte[0] < 128:
            return number
    raise ValueError("no ONNX model")


EXPECTED = "an ONNX model that star-export made"
# Field numbers: graph and metadata in ONNX's ModelProto, weights in its graph, their type and their bytes in a
# tensor, and key and value in an entry of the metadata.
GRAPH, METADATA = 7, 14
INITIALIZER, DATA_TYPE, RAW_DATA = 5, 2, 9
INT8 = 3  # of ONNX's `DataType`
# Nodes in a graph, and the domain of a node's operator.
NODE, DOMAIN = 1, 7
KEY, VALUE = 1, 2
# Of an input: in its graph, its name and type, the path from its type to a dimension, and that one's size or name.
INPUT, NAME, TYPE = 11, 1, 2
TENSOR, SHAPE, DIMENSION = 1, 2, 1
SIZE, SIZE_NAME = 1, 2


def read_metadata(path: Path) -> dict[str, str]:
    """Read the metadata of an ONNX file; the graph is skipped."""
    with _opened(path) as (file, size):
        return dict(_entry(file, each) for each in _messages(file, size, METADATA))


def read_weight_types(path: Path) -> frozenset[int]:
    """Read the types of an ONNX file's weights, numbers of ONNX's `DataType`; their values are skipped."""
    with _opened(path) as (file, size):
        return frozenset(
            value
            for tensor in _messages(file, size, GRAPH, INITIALIZER)
            for number, kind, value in _fields(file, file.tell() + tensor)
            if (number, kind) == (DATA_TYPE, VARINT)
        )


def read_largest_int8(model: Path | bytes) -> int:
    """Read the largest magnitude among the weights of type int8 of an ONNX file, or of its bytes; 0 without any."""
    with _opened(model) as (file, size):
        tensors = _messages(file, size, GRAPH, INITIALIZER)
        return max((_largest_int8(file, each) for each in tensors), default=0)


def read_domains(path: Path) -> frozenset[str]:
    """Read the domains of the operators of a graph's own nodes; ONNX's operators have none."""
    with _opened(path) as (file, size):
        return frozenset(
            _text_of(file, value)
            for node in _messages(file, size, GRAPH, NODE)
            for number, kind, value in _fields(file, file.tell() + node)
            if (number, kind) == (DOMAIN, SIZED)
        )


def read_inputs(path: Path) -> dict[str, tuple[int | str, ...]]:
    """Read the shapes of a model's inputs by name; a dynamic size is its name, or "" without one."""
    with _opened(path) as (file, size):
        return dict(_input(file, each) for each in _messages(file, size, GRAPH, INPUT))


@contextmanager
def _opened(model: Path | bytes) -> Iterator[tuple[BinaryIO, int]]:
    """Yield a file, or one of these bytes, and its size in bytes."""
    try:
        with BytesIO(model) if isinstance(model, bytes) else regular(model).open("rb") as file:
            yield file, len(model) if isinstance(model, bytes) else os.fstat(file.fileno()).st_size
    except (OSError, ValueError, OverflowError) as error:
        name = "an ONNX model in memory" if isinstance(model, bytes) else str(model)
        raise ArtefactError(name, reason_of(error), EXPECTED) from None


def _messages(file: BinaryIO, size: int, wanted: int, *within: int) -> Iterator[int]:
    """Yield the size of each message `wanted` in one of so many bytes, at its start; or of those `within` it."""
    for number, kind, value in _fields(file, file.tell() + size):
        if (number, kind) == (wanted, SIZED):
            yield from _messages(file, value, *within) if within else (value,)


def _entry(file: BinaryIO, size: int) -> tuple[str, str]:
    parts = {KEY: "", VALUE: ""}
    for number, kind, value in _fields(file, file.tell() + size):
        if kind != SIZED or number not in parts:
            raise ValueError("no ONNX metadata")
        parts[number] = _text_of(file, value)
    return parts[KEY], parts[VALUE]


def _largest_int8(file: BinaryIO, size: int) -> int:
    """Read the largest magnitude of a tensor; 0 for one of another type."""
    found = {number: (file.tell(), value) for number, _, value in _fields(file, file.tell() + size)}
    if found.get(DATA_TYPE, (0, 0))[1] != INT8 or RAW_DATA not in found:
        return 0
    start, length = found[RAW_DATA]
    file.seek(start)
    return int(np.abs(np.frombuffer(file.read(length), np.int8).astype(np.int16)).max(initial=0))


def _input(file: BinaryIO, size: int) -> tuple[str, tuple[int | str, ...]]:
    name, shape = "", []
    for number, kind, value in _fields(file, file.tell() + size):
        if (number, kind) == (NAME, SIZED):
            name = _text_of(file, value)
        elif (number, kind) == (TYPE, SIZED):
            shape = [_size(file, each) for each in _messages(file, value, TENSOR, SHAPE, DIMENSION)]
    return name, tuple(shape)


def _size(file: BinaryIO, size: int) -> int | str:
    for number, kind, value in _fields(file, file.tell() + size):
        if (number, kind) == (SIZE, VARINT):
            return value
        if (number, kind) == (SIZE_NAME, SIZED):
            return _text_of(file, value)
    return ""
