"""Finished measurements on disk: after an interruption none is repeated, and the same ones give the same choice."""

import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from exporter.errors import ArtefactError
from exporter.files import written_beside
from exporter.formats.canonical_json import to_json

__all__ = ["Ledger"]

Array = np.ndarray[Any, Any]


class Ledger:
    """Measurements in a folder, each under its name.

    Args:
        folder: It may hold measurements of other models and images; they are left alone.
        identity: What the measurements are of: weights, images, versions.
    """

    def __init__(self, folder: Path, identity: str) -> None:
        self.folder, self.identity = folder, identity
        self.spent_s = 0.0
        self._read: set[str] = set()

    def knows(self, name: str) -> bool:
        """Whether this was measured before."""
        return self._path(name).exists()

    def seconds(self, name: str) -> float:
        """Return how long a measurement took that is known."""
        return float(self._content(name)["seconds"])

    def answers(self, name: str, measure: Callable[[], Array]) -> Array:
        """Return integers, measured unless they are known."""
        return np.array(self.record(name, lambda: measure().tolist()), np.int64)

    def record(self, name: str, measure: Callable[[], Any]) -> Any:
        """Return plain values, measured unless they are known; their time counts as spent either way.

        Raises:
            ArtefactError: The file of a measurement is broken.
        """
        path = self._path(name)
        if not path.exists():
            start = time.perf_counter()
            value = measure()
            told = to_json({"name": name, "value": value, "seconds": time.perf_counter() - start})
            with written_beside(path) as partial:
                partial.write_text(told, encoding="utf-8")
        content = self._content(name)
        if name not in self._read:
            self._read.add(name)
            self.spent_s += float(content["seconds"])
        return content["value"]

    def _content(self, name: str) -> dict[str, Any]:
        path = self._path(name)
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            return {"value": content["value"], "seconds": float(content["seconds"])}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ArtefactError(
                str(path), str(error), "a measurement", "delete it to measure again"
            ) from None

    def _path(self, name: str) -> Path:
        key = hashlib.sha256(f"{self.identity}\n{name}".encode()).hexdigest()[:24]
        return self.folder / f"{key}.json"
