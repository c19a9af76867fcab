"""Read the metadata of an ONNX file, and the types of its weights, without onnx or any runtime."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from exporter.errors import ArtefactError, reason_of
from exporter.files import regular
from exporter.formats.protobuf import SIZED, VARINT, fields, text_of

__all__ = ["EXPECTED", "read_metadata", "read_weight_types"]

EXPECTED = "an ONNX model that star-export made"
# Field numbers: graph and metadata in ONNX's ModelProto, weights in its graph, their type in a tensor, and key and
# value in an entry of the metadata.
GRAPH, METADATA = 7, 14
INITIALIZER, DATA_TYPE = 5, 2
KEY, VALUE = 1, 2


def read_metadata(path: Path) -> dict[str, str]:
    """Read the metadata of an ONNX file; the graph is skipped.

    Raises:
        ArtefactError: The file cannot be read, or is no ONNX model.
    """
    with _opened(path) as (file, size):
        return dict(_entry(file, each) for each in _messages(file, METADATA, size))


def read_weight_types(path: Path) -> frozenset[int]:
    """Read the types of an ONNX file's weights, numbers of ONNX's `DataType`; their values are skipped.

    Raises:
        ArtefactError: The file cannot be read, or is no ONNX model.
    """
    with _opened(path) as (file, size):
        return frozenset(
            value
            for graph in _messages(file, GRAPH, size)
            for tensor in _messages(file, INITIALIZER, graph)
            for number, kind, value in fields(file, file.tell() + tensor)
            if (number, kind) == (DATA_TYPE, VARINT)
        )


@contextmanager
def _opened(path: Path) -> Iterator[tuple[BinaryIO, int]]:
    """Yield a file and its size in bytes."""
    try:
        with regular(path).open("rb") as file:
            yield file, os.fstat(file.fileno()).st_size
    except (OSError, ValueError, OverflowError) as error:
        raise ArtefactError(str(path), reason_of(error), EXPECTED) from None


def _messages(file: BinaryIO, wanted: int, size: int) -> Iterator[int]:
    """Yield the size of each message with the number `wanted` in a message of so many bytes, at its start."""
    for number, kind, value in fields(file, file.tell() + size):
        if (number, kind) == (wanted, SIZED):
            yield value


def _entry(file: BinaryIO, size: int) -> tuple[str, str]:
    """Read one key and its value."""
    parts = {KEY: "", VALUE: ""}
    for number, kind, value in fields(file, file.tell() + size):
        if kind != SIZED or number not in parts:
            raise ValueError("no ONNX metadata")
        parts[number] = text_of(file, value)
    return parts[KEY], parts[VALUE]
