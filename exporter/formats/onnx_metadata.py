"""Read the metadata of an ONNX file from protobuf's top level, without onnx or any runtime."""

import os
from pathlib import Path
from typing import BinaryIO

from exporter.errors import ArtefactError
from exporter.files import regular

__all__ = ["EXPECTED", "read_metadata"]

EXPECTED = "an ONNX model that star-export made"
# Field numbers: metadata in ONNX's ModelProto, key and value in its entries; then protobuf's wire types.
METADATA, KEY, VALUE = 14, 1, 2
VARINT, EIGHT_BYTES, SIZED, FOUR_BYTES = 0, 1, 2, 5


def read_metadata(path: Path) -> dict[str, str]:
    """Read the metadata of an ONNX file from protobuf's top level; the graph is skipped, and no runtime is needed.

    Raises:
        ArtefactError: The file cannot be read, or is no ONNX model.
    """
    entries: dict[str, str] = {}
    try:
        with regular(path).open("rb") as file:
            while head := file.read(1):
                number, kind = divmod(_varint(file, head), 8)
                if kind == SIZED and number == METADATA:
                    entries.update([_entry(file, _varint(file))])
                else:
                    _skip(file, kind)
    except (OSError, ValueError, OverflowError) as error:
        raise ArtefactError(str(path), str(error), EXPECTED) from None
    return entries


def _entry(file: BinaryIO, size: int) -> tuple[str, str]:
    """Read one key and its value."""
    parts, end = {KEY: "", VALUE: ""}, file.tell() + size
    while file.tell() < end:
        number, kind = divmod(_varint(file), 8)
        if kind != SIZED or number not in parts:
            raise ValueError("no ONNX metadata")
        parts[number] = _bytes(file, _varint(file)).decode("utf-8")
    if file.tell() != end:
        raise ValueError("no ONNX metadata")
    return parts[KEY], parts[VALUE]


def _skip(file: BinaryIO, kind: int) -> None:
    if kind == VARINT:
        _varint(file)
    elif kind in (EIGHT_BYTES, FOUR_BYTES):
        _bytes(file, 8 if kind == EIGHT_BYTES else 4)
    elif kind == SIZED:
        size = _varint(file)
        if size:
            file.seek(size - 1, 1)
            _bytes(file, 1)  # fails if the file ends within the field
    else:
        raise ValueError("no ONNX model")


def _varint(file: BinaryIO, head: bytes = b"") -> int:
    """Read a varint: seven bits per byte, lowest first; at most 64 bits."""
    number = 0
    for shift in range(0, 70, 7):
        byte = (head or _bytes(file, 1))[0]
        head = b""
        number |= (byte & 127) << shift
        if byte < 128:
            return number
    raise ValueError("no ONNX model")


def _bytes(file: BinaryIO, size: int) -> bytes:
    # read() allocates `size` bytes first, so the length is compared with the size of the file before.
    if size > 1 and size > os.fstat(file.fileno()).st_size:
        raise ValueError("no ONNX model, or a torn one")
    content = file.read(size)
    if len(content) != size:
        raise ValueError("no ONNX model, or a torn one")
    return content
