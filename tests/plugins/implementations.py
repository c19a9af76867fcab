"""Other implementations of CdfRetain in the reference's form, and the comparison with it."""

import ctypes
from pathlib import Path

import numpy as np

from exporter.core.prune.ops.cdf_reference import Retained, cdf_retain
from tests.plugins.rows import Case


class HostLibrary:
    """The plugin's row logic on the CPU, from `libcdf_retain_host.so`."""

    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(str(path))
        self._library = library
        self._call = library.cdfRetainHost
        self._call.restype = ctypes.c_int32

    def __call__(self, case: Case) -> Retained | None:
        """What it retains, or None where it refuses."""
        score = np.ascontiguousarray(case.score)
        valid = case.valid_count.astype(np.int64)
        batch, patches = score.shape
        index = np.full((batch, patches), -1, np.int64)
        count = np.full(batch, -1, np.int64)
        width = np.array(-1, np.int64)
        refused = self._call(
            _pointer(score), _pointer(valid), ctypes.c_int64(batch), ctypes.c_int64(patches),
            ctypes.c_float(case.mass), _pointer(index), _pointer(count), _pointer(width),
        )  # fmt: skip
        if refused:
            return None
        return Retained(
            index.reshape(-1)[: batch * width].reshape(batch, width), count, width
        )

    def take_races(self) -> int:
        """Races since the last call; none are seen unless accesses are watched."""
        self._library.takeRaces.restype = ctypes.c_int64
        return int(self._library.takeRaces())


def mismatches(case: Case, result: Retained) -> int:
    """Rows in which a result is not the reference's; all of them where the widths differ."""
    reference = cdf_retain(case.score, case.valid_count, case.mass)
    if reference.width != result.width:
        return len(case.score)
    wrong = (reference.keep_index != result.keep_index).any(axis=1) | (
        reference.keep_count != result.keep_count
    )
    return int(wrong.sum())


def _pointer(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
