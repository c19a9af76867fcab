"""Root as an ordinary user: without the right to read and write what its permission bits forbid."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

# linux/capability.h: the version of the structures, and the bits of CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH.
VERSION = 0x20080522
OVERRIDES = 1 << 1 | 1 << 2


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Sets(ctypes.Structure):
    """One half of the capabilities; there are two, of 32 bits each."""

    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


@contextmanager
def as_ordinary_user() -> Iterator[None]:
    """Run the body without both rights, in this thread and those that it starts; other users have neither."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = _Header(VERSION, 0)
    sets = (_Sets * 2)()

    def call(function: str) -> None:
        if libc[function](ctypes.byref(header), ctypes.byref(sets)):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    call("capget")
    before = sets[0].effective
    sets[0].effective &= ~OVERRIDES
    call("capset")
    try:
        yield
    finally:
        sets[0].effective = before
        call("capset")
