"""Import the scripts of benchmarks/ as modules."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).parents[2] / "benchmarks"


def script(path: str) -> ModuleType:
    """The module of a script, with its neighbours on the path as when it is run."""
    file = FOLDER / path
    sys.path[:0] = [str(file.parent), str(FOLDER)]
    try:
        return importlib.import_module(file.stem)
    finally:
        del sys.path[:2]
