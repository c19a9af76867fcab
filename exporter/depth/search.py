"""Choose how many units of each type to remove: the best prediction among all splits of a budget."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from exporter.depth.predictor import Predictor
from exporter.errors import DepthError
from exporter.vocabulary import UnitType

__all__ = ["Split", "best_split", "splits"]


@dataclass(frozen=True)
class Split:
    """How many attention layers and activations are removed, and the accuracy predicted for it in percent."""

    attention: int
    activation: int
    accuracy: float


def best_split(
    predictor: Predictor, depth: int, units: int, most: Mapping[UnitType, int] | None = None
) -> Split:
    """Return the split of a budget with the highest predicted accuracy; of equal ones that with less attention.

    Args:
        predictor: Predicts from shares.
        depth: L, the model's blocks.
        units: K, the number of units removed, of both types together.
        most: How many of each type may go; by default all but one attention.

    Raises:
        DepthError: The budget is not in 0 to 2L − 1, or more than may go.
    """
    allowed = [
        split
        for split in splits(predictor, depth, units)
        if most is None
        or (split.attention <= most[UnitType.ATTENTION] and split.activation <= most[UnitType.ACTIVATION])
    ]
    if not allowed and most is not None:
        raise DepthError("units", str(units), f"at most {sum(most.values())}, which can go")
    # `max` returns the first of equal ones.
    return max(allowed, key=lambda split: split.accuracy)


def splits(predictor: Predictor, depth: int, units: int) -> Iterator[Split]:
    """Return all splits of a budget that leave one attention, by rising number of attention layers, predicted.

    Raises:
        DepthError: The budget is not in 0 to 2L − 1.
    """
    if not 0 <= units < 2 * depth:
        expected = f"0 to {2 * depth - 1}, two for each of the {depth} layers but one attention"
        raise DepthError("units", str(units), expected)
    return (
        Split(
            attention, units - attention, predictor.accuracy(attention / depth, (units - attention) / depth)
        )
        for attention in range(max(0, units - depth), min(units, depth - 1) + 1)
    )
