"""Units and rho together: models by their predicted accuracy and their cost, and the front of both."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from exporter.depth.predictor import Predictor, Sample

__all__ = ["Counts", "Pair", "best_pair", "counts_of", "front"]

# How many attention layers and activations are removed.
Counts: TypeAlias = tuple[int, int]


@dataclass(frozen=True)
class Pair:
    """How many units of each type are removed, and rho; multiply-adds in 10⁹, and predicted accuracy in percent."""

    attention: int
    activation: int
    rho: float
    gmacs: float
    accuracy: float

    @classmethod
    def predicted(cls, predictor: Predictor, depth: int, counts: Counts, rho: float, macs: float) -> "Pair":
        """Return the pair of a model of `depth` blocks with its prediction."""
        attention, activation = counts
        accuracy = predictor.accuracy(attention / depth, activation / depth, rho)
        return cls(attention, activation, rho, macs / 1e9, accuracy)

    @property
    def counts(self) -> Counts:
        """The numbers of units."""
        return self.attention, self.activation


def counts_of(samples: Sequence[Sample], depth: int) -> list[Counts]:
    """Return the numbers of units that samples cover: of each type, and together, no more than any sample has."""
    seen = [(round(each.attention * depth), round(each.activation * depth)) for each in samples]
    attention, activation = (max(counts) for counts in zip(*seen, strict=True))
    both = max(map(sum, seen))
    return [(a, t) for a in range(attention + 1) for t in range(activation + 1) if a + t <= both]


def best_pair(found: Iterable[Pair]) -> Pair | None:
    """Return the pair with the highest predicted accuracy; of equal ones that with fewer units and fewer MACs."""
    return min(found, key=lambda pair: (-pair.accuracy, sum(pair.counts), pair.gmacs), default=None)


def front(found: Iterable[Pair]) -> tuple[Pair, ...]:
    """Return the pairs that no other beats in both cost and predicted accuracy, by rising cost."""
    kept: list[Pair] = []
    for pair in sorted(found, key=lambda each: (each.gmacs, -each.accuracy)):
        if not kept or pair.accuracy > kept[-1].accuracy:
            kept.append(pair)
    return tuple(kept)
