"""Score rows of every kind that a retention must agree on: even, heavy-tailed, tied, broken."""

from collections.abc import Iterator

import numpy as np

Array = np.ndarray[tuple[int, ...], np.dtype[np.float32]]

KINDS = (
    "random",
    "uniform",
    "heavy-tailed",
    "attention",
    "tied",
    "broken",
    "flat",
    "steep",
)


def score_rows(kind: str, rows: int, patches: int, seed: int = 0) -> Array:
    """[rows, patches] float32."""
    draw = np.random.default_rng([seed, KINDS.index(kind), patches])
    shape = (rows, patches)
    with np.errstate(over="ignore"):
        made = {
            "random": lambda: draw.random(shape),
            "uniform": lambda: np.ones(shape) * draw.random((rows, 1)),
            "heavy-tailed": lambda: draw.pareto(0.8, shape),
            "attention": lambda: np.exp(draw.normal(0.0, 2.0, shape) - 4.0),
            "tied": lambda: draw.integers(0, 4, shape) / 4.0,
            "broken": lambda: draw.choice(
                [np.nan, np.inf, -1.0, 0.0, 1e-42, 0.5, 1.0], shape
            ),
            "flat": lambda: draw.choice([0.0, 1.0, 1.0 + 2**-23], shape),
            "steep": lambda: np.exp(draw.normal(0.0, 4.0, shape)),
        }[kind]()
        return made.astype(np.float32)


def valid_counts(rows: int, patches: int, seed: int = 0) -> Iterator[np.ndarray]:
    """Full rows, then rows of any length."""
    yield np.full(rows, patches)
    yield np.random.default_rng(seed).integers(1, patches + 1, rows)
