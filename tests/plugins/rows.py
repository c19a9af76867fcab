"""Rows of scores on which CdfRetain's implementations are compared: ordinary ones, and edge cases."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

Draw = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]

# One warp, the longest row that is ranked in pairs, one block and the limit, each with its neighbours, and the
# patches of common ViTs. More rows, once, than a block has threads.
ROWS_A_CASE = {
    **dict.fromkeys((1, 2, 16, 31, 32, 33, 64), 12),
    3: 300,
    **dict.fromkeys((196, 197), 60),
    **dict.fromkeys((256, 257, 576, 1024, 1025), 2),
    **dict.fromkeys((4095, 4096), 1),
}
SMALLEST = np.float32(1e-45)
MASSES = (
    1e-38,
    1e-6,
    0.25,
    0.5,
    0.7,
    0.75,
    0.95,
    float(np.nextafter(np.float32(1), np.float32(0))),
    1.0,
)


class Case(NamedTuple):
    """One call of the operator: score [B, N] float32, valid_count [B] int64, mass a float32 value."""

    score: np.ndarray
    valid_count: np.ndarray
    mass: float


def uniform(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return rng.random(shape)


def heavy_tailed(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return rng.pareto(1.5, shape)


def fused(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """What the operator meets in a model: exp(log score − row maximum)."""
    logs = rng.normal(0, 3, shape)
    return np.exp(logs - logs.max(axis=1, keepdims=True))


def ties(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return rng.integers(0, 3, shape)


def equal(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Sums that meet a mass of k/n to the last bit."""
    return np.full(shape, rng.random())


def powers_of_two(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return 2.0 ** -rng.integers(0, 26, shape)


def neighbours(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Scores a few float32 steps apart, whose quotients round to and from 1."""
    return 1 + rng.integers(0, 8, shape) * 2.0**-23


def subnormal(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return rng.integers(0, 9, shape) * SMALLEST


def wide(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Subnormal to the largest float in one row."""
    return np.exp2(rng.uniform(-149, 127.99, shape))


def broken(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    values = np.array(
        [
            np.nan,
            np.inf,
            -np.inf,
            -1,
            -0.0,
            0,
            0.5,
            1,
            SMALLEST,
            np.finfo(np.float32).max,
        ]
    )
    row = rng.choice(values[rng.permutation(len(values))[:4]], shape)
    return np.where(rng.random(shape) < 0.5, row, rng.random(shape))


def nothing(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """No positive score."""
    return rng.choice([0.0, -0.0, -1.0, np.nan, -np.inf], shape)


FAMILIES: tuple[Draw, ...] = (
    uniform, heavy_tailed, fused, ties, equal, powers_of_two, neighbours, subnormal, wide, broken, nothing,
)  # fmt: skip


def cases() -> Iterator[Case]:
    """Every family at every size and mass, half of them with rows of unequal length; then the edges of counts."""
    rng = np.random.default_rng(0)
    turn = 0
    for patches, rows in ROWS_A_CASE.items():
        for draw in FAMILIES:
            whole = float(np.float32(rng.integers(1, patches + 1) / patches))
            for mass in (
                (*MASSES, whole)
                if patches < 4095
                else (MASSES[turn % len(MASSES)], whole)
            ):
                turn += 1
                score = draw(rng, (rows, patches)).astype(np.float32)
                yield (
                    _ragged(rng, score, mass)
                    if turn % 2
                    else Case(score, np.full(rows, patches), mass)
                )
    yield from _edges_of_counts(rng)


def _edges_of_counts(rng: np.random.Generator) -> Iterator[Case]:
    """Rows that k(mass, n) alone decides, at masses where mass·n rounds to or past a whole number, or the guard."""
    for _ in range(1500):
        patches = int(rng.integers(2, 1025))
        whole = rng.integers(1, patches)
        for above in (0, 1e-4):
            mass = np.float32((whole + above) / patches)
            yield Case(
                np.zeros((1, patches), np.float32), np.array([patches]), float(mass)
            )


def _ragged(rng: np.random.Generator, score: np.ndarray, mass: float) -> Case:
    """The same with rows that end early; what follows must not be read."""
    rows, patches = score.shape
    valid = rng.integers(1, patches + 1, rows)
    garbage = rng.choice(np.array([np.nan, np.inf, 1e30, 1], np.float32), score.shape)
    return Case(
        np.where(np.arange(patches) < valid[:, None], score, garbage), valid, mass
    )
