"""Finished measurements on disk: after an interruption none is repeated, and the same ones give the same choice."""

import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from exporter.errors import ArtefactError, reason_of
from exporter.files import written_beside
from exporter.formats.canonical_json import to_json
from exporter.processes import processes

__all__ = ["Ledger"]


class Ledger:
    """Measurements in a folder, each under its name. Under a launcher, the main process reads and writes them.

    Args:
        folder: It may hold measurements of other models and images; they are left alone.
        identity: What the measurements are of: images, versions.
    """

    def __init__(self, folder: Path, identity: str) -> None:
        self.folder, self.identity = folder, identity
        self._seconds: dict[str, float] = {}

    @property
    def spent_s(self) -> float:
        """The time of all measurements that were asked for, whenever they were made."""
        return sum(self._seconds.values())

    def seconds(self, name: str) -> float:
        """Return how long a measurement took that was asked for before."""
        return self._seconds[name]

    def knows(self, name: str) -> bool:
        """Whether this was measured before."""
        return self._path(name).exists()

    def record(self, name: str, measure: Callable[[], Any], *, together: bool = False) -> Any:
        """Return plain values, measured unless they are known.

        Args:
            name: Of the measurement.
            measure: Returns the values.
            together: Every process of a launcher measures its part; otherwise the main one, while the others wait.

        Raises:
            ArtefactError: The file of a measurement is broken.
        """
        crew = processes()
        known = crew.of_main(self._content(name) if crew.main and self.knows(name) else None)
        if known is None:
            start = time.perf_counter()
            value = measure() if together or crew.main else None
            known = crew.of_main({"value": value, "seconds": time.perf_counter() - start})
            if crew.main:
                self._write(name, known)
        self._seconds[name] = float(known["seconds"])
        return known["value"]

    def _write(self, name: str, content: dict[str, Any]) -> None:
        with written_beside(self._path(name)) as partial:
            partial.write_text(to_json({"name": name, **content}), encoding="utf-8")

    def _content(self, name: str) -> dict[str, Any]:
        path = self._path(name)
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            return {"value": content["value"], "seconds": float(content["seconds"])}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ArtefactError(
                str(path), reason_of(error), "a measurement", "delete it to measure again"
            ) from None

    def _path(self, name: str) -> Path:
        key = hashlib.sha256(f"{self.identity}\n{name}".encode()).hexdigest()[:24]
        return self.folder / f"{key}.json"
