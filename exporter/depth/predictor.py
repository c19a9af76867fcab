"""Predict accuracy from how many units of each type are removed: a polynomial fitted to samples (MAP).

P(a, t) = Σ θ_ij · a^i · t^j over i + j ≤ degree, where a and t are the shares of attention layers and activations
that are kept, as in the published coefficients. Samples hold the shares removed, 1 − a and 1 − t.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, combinations_with_replacement

import numpy as np

from exporter.core.base.errors import DepthError
from exporter.core.base.settings import Natural, Number, Weight
from exporter.core.base.tensor_names import Array
from exporter.core.base.vocabulary import UnitType

DEGREES = (1, 2, 3, 4)
# Singular values below this share of the largest one are rounding: the samples say nothing about that direction.
RANK_CUT = 1e-10


@dataclass(frozen=True)
class Sample:
    """A measured model: the shares of attention layers and activations removed, and its top-1 accuracy in percent.

    `images` is how many it was measured on, 0 for an unknown number.
    """

    attention: Weight
    activation: Weight
    accuracy: Number
    images: Natural = 0


@dataclass(frozen=True)
class Predictor:
    """The polynomial: coefficients of 1, a, t, a², at, t², … in this order."""

    degree: int
    coefficients: tuple[float, ...]

    def accuracy(self, attention: float, activation: float) -> float:
        """Return the predicted accuracy in percent; the arguments are the shares removed."""
        row = _terms(np.array([[1 - attention, 1 - activation]]), self.degree)[0]
        return float(row @ np.array(self.coefficients))


class CrossValidation:
    """Leave-two-out cross-validation of every degree, prepared for many accuracies at the same shares.

    A prediction of left-out samples is linear in the accuracies of the others, so each degree needs one
    matrix. Where the others do not determine all coefficients, the smallest ones are taken (minimum norm). Of
    the samples only the shares are used.
    """

    def __init__(self, samples: Sequence[Sample]) -> None:
        shares = _shares_left(samples)
        self.designs = {
            degree: _terms(shares, degree)
            for degree in DEGREES
            if len(shares) - 2 >= _count(degree)
        }
        if not self.designs:
            expected = f"at least {_count(DEGREES[0]) + 2}"
            why = "two models are left out at a time"
            raise DepthError("samples", f"{len(shares)} of them", expected, why)

    @cached_property
    def errors(self) -> dict[int, Array]:
        """For each degree the matrix [left out, samples] from accuracies to the errors of left-out samples."""
        return {degree: _left_out(design) for degree, design in self.designs.items()}

    @cached_property
    def determined(self) -> tuple[int, ...]:
        """Degrees whose coefficients are all determined by all samples together: the others are not chosen."""
        return tuple(
            degree for degree, design in self.designs.items() if _is_determined(design)
        )

    def rmse(self, accuracies: Array) -> dict[int, float]:
        """Return the root-mean-square error of each degree, in percentage points."""
        return {
            degree: float(np.sqrt(np.mean(np.square(matrix @ accuracies))))
            for degree, matrix in self.errors.items()
        }

    def best(self, accuracies: Array) -> int:
        """Return the degree with the lowest error; of equal ones the lower degree."""
        if not self.determined:
            got = "no degree whose coefficients they determine"
            raise DepthError(
                "samples", got, "samples with both types removed, in different shares"
            )
        rmse = self.rmse(accuracies)
        return min(self.determined, key=rmse.__getitem__)


def fit(samples: Sequence[Sample], degree: int) -> Predictor:
    """Return the polynomial with the least squared error, of a degree that the samples determine."""
    design = _terms(_shares_left(samples), degree)
    solved = np.linalg.lstsq(design, accuracies_of(samples), rcond=RANK_CUT)[0]
    return Predictor(degree, tuple(map(float, solved)))


def fit_best(samples: Sequence[Sample]) -> Predictor:
    """Return the polynomial whose degree leave-two-out cross-validation chooses, fitted to all samples."""
    return fit(samples, CrossValidation(samples).best(accuracies_of(samples)))


def accuracies_of(samples: Sequence[Sample]) -> Array:
    """Return the accuracies in percent, [samples]."""
    return np.array([sample.accuracy for sample in samples])


def _shares_left(samples: Sequence[Sample]) -> Array:
    rows = [(1 - sample.attention, 1 - sample.activation) for sample in samples]
    return np.array(rows).reshape(-1, 2)


def _count(degree: int) -> int:
    return (degree + 1) * (degree + 2) // 2


def _terms(shares: Array, degree: int) -> Array:
    """Return the products of the shares [samples, 2], [samples, terms], by rising total degree."""
    terms = []
    for total in range(degree + 1):
        for factors in combinations_with_replacement(range(2), total):
            terms.append(shares[:, list(factors)].prod(axis=1))
    return np.stack(terms, axis=1)


def _is_determined(design: Array) -> bool:
    rank = np.linalg.lstsq(design, np.zeros(len(design)), rcond=RANK_CUT)[2]
    return bool(rank == design.shape[1])


def _left_out(design: Array) -> Array:
    """Return the matrix of `CrossValidation.errors`: predictions of each pair from the others, minus the truth."""
    samples = len(design)
    rows = []
    for pair in map(list, combinations(range(samples), 2)):
        fitted = [index for index in range(samples) if index not in pair]
        row = -np.eye(samples)[pair]
        row[:, fitted] = design[pair] @ np.linalg.pinv(design[fitted], rcond=RANK_CUT)
        rows.append(row)
    return np.concatenate(rows)


@dataclass(frozen=True)
class Split:
    """How many attention layers and activations are removed, and the accuracy predicted for it in percent."""

    attention: int
    activation: int
    accuracy: float


def best_split(
    predictor: Predictor,
    depth: int,
    units: int,
    most: Mapping[UnitType, int] | None = None,
) -> Split:
    """Return the split of a budget with the highest predicted accuracy; of equal ones that with less attention.

    `units` are removed in all from a model of `depth` blocks; by default, all but one attention may go.
    """
    allowed = [
        split
        for split in splits(predictor, depth, units)
        if most is None
        or (
            split.attention <= most[UnitType.ATTENTION]
            and split.activation <= most[UnitType.ACTIVATION]
        )
    ]
    if not allowed and most is not None:
        raise DepthError(
            "units", str(units), f"at most {sum(most.values())}, which can go"
        )
    # `max` returns the first of equal ones.
    return max(allowed, key=lambda split: split.accuracy)


def splits(predictor: Predictor, depth: int, units: int) -> Iterator[Split]:
    """Return the splits of a budget in 0 to 2L − 1 that leave one attention, by rising number of attentions."""
    if not 0 <= units < 2 * depth:
        expected = f"0 to {2 * depth - 1}, two for each of the {depth} layers but one attention"
        raise DepthError("units", str(units), expected)
    return (
        Split(
            attention,
            units - attention,
            predictor.accuracy(attention / depth, (units - attention) / depth),
        )
        for attention in range(max(0, units - depth), min(units, depth - 1) + 1)
    )
