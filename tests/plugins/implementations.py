"""Other implementations of CdfRetain and SelectTopK in the references' form, and the comparisons with these."""

import ctypes
from pathlib import Path

import numpy as np

from exporter.ops.cdf_reference import Retained, cdf_retain, largest_counts
from tests.plugins.rows import Case


class HostLibrary:
    """The plugins' row logic on the CPU, from `libcdf_retain_host.so`."""

    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(str(path))
        self._library = library
        self._call, self._select = library.cdfRetainHost, library.selectTopKHost
        self._call.restype = self._select.restype = ctypes.c_int32

    def __call__(self, case: Case) -> Retained | None:
        """What it retains, or None where it refuses."""
        score, valid = np.ascontiguousarray(case.score), case.valid_count.astype(np.int64)
        batch, patches = score.shape
        index, count = np.full((batch, patches), -1, np.int64), np.full(batch, -1, np.int64)
        width = np.array(-1, np.int64)
        refused = self._call(
            _pointer(score), _pointer(valid), ctypes.c_int64(batch), ctypes.c_int64(patches),
            ctypes.c_float(case.mass), _pointer(index), _pointer(count), _pointer(width),
        )  # fmt: skip
        if refused:
            return None
        return Retained(index.reshape(-1)[: batch * width].reshape(batch, width), count, width)

    def select(self, score: np.ndarray, k: int, prefix: int) -> np.ndarray | None:
        """Rows of SelectTopK as `selected` gives them, or None where it refuses."""
        score = np.ascontiguousarray(score)
        batch, patches = score.shape
        keep, rows = (
            np.full((batch, k), -1, np.int64),
            np.full((batch, prefix + k), -1, np.int64),
        )
        sizes = (ctypes.c_int64(each) for each in (batch, patches, k, prefix))
        refused = self._select(_pointer(score), *sizes, _pointer(keep), _pointer(rows))
        return None if refused else np.concatenate([keep, rows], axis=1)

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


def top_k_of(case: Case) -> int:
    """The k that STAR has at the case's mass."""
    return int(largest_counts(case.mass, np.array([case.score.shape[1]]))[0])


def selected(score: np.ndarray, k: int, prefix: int) -> np.ndarray:
    """What SelectTopK gives, [batch, k + prefix + k]: the survivors, ascending, then the rows; NaN ranks last."""
    unknown = np.isnan(score)
    order = np.lexsort((-np.where(unknown, 0, score), unknown), axis=1)
    keep = np.sort(order[:, :k], axis=1)
    first = np.tile(np.arange(prefix), (len(score), 1))
    return np.concatenate([keep, first, keep + prefix], axis=1)


def _pointer(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
