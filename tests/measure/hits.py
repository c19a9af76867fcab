"""Which images a model has right."""

from typing import Any

import numpy as np


def hits(right: int, of: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """The first so many images are right."""
    return np.arange(of) < right
