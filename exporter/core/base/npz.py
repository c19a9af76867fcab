"""Read the arrays of an .npz file; whatever is wrong with one is one kind of error."""

import lzma
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np

from exporter.core.base.errors import reason_of
from exporter.core.base.files import regular
from exporter.core.base.tensor_names import Array

# What zipfile and NumPy raise for files that are damaged, encrypted, or no archive of arrays.
UNREADABLE = (
    OSError,
    EOFError,
    KeyError,
    TypeError,
    ValueError,
    MemoryError,
    OverflowError,
    RuntimeError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
)


def read_arrays(path: Path) -> dict[str, Array]:
    """Read all arrays of a file, without unpickling.

    Raises:
        ValueError: There is no such file, or it cannot be read; the message is one line.
    """
    try:
        with regular(path).open("rb") as file:
            if not zipfile.is_zipfile(file):
                raise ValueError("no zip archive")
            file.seek(0)
            with np.load(file, allow_pickle=False) as arrays:
                return {name: arrays[name] for name in arrays.files}
    except UNREADABLE as error:
        raise ValueError(reason_of(error)) from None
