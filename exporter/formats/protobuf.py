"""Walk over the fields of a protobuf message in a file, without its schema, and without reading all of it."""

from collections.abc import Iterator
from typing import BinaryIO

__all__ = ["SIZED", "VARINT", "fields", "text_of"]

# Wire types; the sizes of those that have one size.
VARINT, SIZED = 0, 2
FIXED_BYTES = {1: 8, 5: 4}

TORN = "no ONNX model, or a torn one"


def fields(file: BinaryIO, end: int) -> Iterator[tuple[int, int, int]]:
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


def text_of(file: BinaryIO, size: int) -> str:
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
