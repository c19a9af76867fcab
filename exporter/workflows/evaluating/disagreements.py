"""Write the images to which two models give different classes, as JSON and as CSV."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from exporter.errors import OutputError
from exporter.evaluation.accuracy import Predictions
from exporter.files import writable_file, written_beside
from exporter.formats.canonical_json import save_json

__all__ = ["Disagreement", "disagreement_paths", "disagreements", "save_disagreements"]


@dataclass(frozen=True)
class Disagreement:
    """An image, the index of its class if it is known, and the classes that both models give it."""

    image: str
    label: int | None
    first: int
    second: int


def disagreements(first: Predictions, second: Predictions, images: Sequence[str]) -> tuple[Disagreement, ...]:
    """Return the images of which the best classes differ, in their order; `images` are the names of all."""
    ours, theirs = first.best[:, 0], second.best[:, 0]
    return tuple(
        Disagreement(
            images[at], int(first.labels[at]) if first.labelled else None, int(ours[at]), int(theirs[at])
        )
        for at in (ours != theirs).nonzero()[0]
    )


def disagreement_paths(path: Path) -> tuple[Path, Path]:
    """Return the paths of both files, which replace the ending .json or .csv of `path` or follow its name.

    Raises:
        OutputError: One of them cannot be written.
    """
    if not path.name:
        raise OutputError(str(path), "a folder", "the name of a file to write")
    stem = path.stem if path.suffix in (".json", ".csv") else path.name
    return writable_file(path.with_name(f"{stem}.json")), writable_file(path.with_name(f"{stem}.csv"))


def save_disagreements(found: Sequence[Disagreement], names: Sequence[str], path: Path) -> None:
    """Write both files, each atomically; `names` are those of the models.

    Raises:
        OutputError: A file cannot be written.
    """
    as_json, as_csv = disagreement_paths(path)
    save_json({"first": names[0], "second": names[1], "images": found}, as_json)
    with (
        written_beside(as_csv) as partial,
        # The name of an image may be no UTF-8: it is written as the file system has it.
        partial.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file,
    ):
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(("image", "label", *names))
        for each in found:
            rows.writerow((each.image, "" if each.label is None else each.label, each.first, each.second))
