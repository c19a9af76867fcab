"""Read a class map: the class index of each name that a data set gives its classes."""

from pathlib import Path

from exporter.errors import ImageError, reason_of
from exporter.formats.canonical_json import read_json

__all__ = ["read_class_map"]


def read_class_map(path: Path, num_classes: int | None) -> dict[str, int]:
    """Read a JSON object of class names and class indices.

    Raises:
        ImageError: The file cannot be read, is something else, or has an index that is not below `num_classes`.
    """
    expected = "a JSON object of folder names and class indices"
    try:
        content = read_json(path)
    except OSError as error:
        raise ImageError(str(path), reason_of(error), expected) from None
    except ValueError as error:
        raise ImageError(str(path), f"no JSON ({reason_of(error)})", expected) from None
    if not isinstance(content, dict):
        raise ImageError(str(path), f"a JSON {type(content).__name__}", expected)
    for name, value in content.items():
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole or value < 0 or (num_classes is not None and value >= num_classes):
            limit = "" if num_classes is None else f" below {num_classes}"
            raise ImageError(str(path), f"{value!r} for {name!r}", f"a class index from 0{limit}")
    return content
