"""The axes of the search: one row each, with the values that it tries. A candidate has one value of each."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from types import MappingProxyType
from typing import Any, TypeAlias

from exporter.errors import RecipeError
from exporter.records import ModelSpec
from exporter.schedule.methods import INTRA, METHODS, RECEIVED, scorer_named
from exporter.schedule.plan import ScheduleSettings
from exporter.vocabulary import Method
from exporter.workflows.recipes.amount import MacShare, Rho

__all__ = ["AXES", "OWN", "SCORING", "UNPRUNED", "Candidate", "Way", "candidates", "pinned", "suited", "ways"]

# The model's own weights, on the axis of weights.
OWN = ""

# Values by axis. "mac_reduction" is the share of the multiply-adds to save; "rho" is tried only where it is given;
# targets are added where they run.
AXES: Mapping[str, tuple[Any, ...]] = MappingProxyType(
    {
        "weights": (OWN,),
        "method": (Method.TOME, Method.STAR, Method.A_STAR),
        "scorer": ("pairs", "fused", "intra", "inter", "random"),
        "reduce": ("merge-weighted", "drop"),
        "alpha": (None, 0.5),
        "mac_reduction": (0.1, 0.2, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6),
        "rho": (None,),
    }
)
# The axes that a recipe can pin by its settings of the same name.
SCORING = ("method", "scorer", "reduce", "alpha")


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One value of each axis; alpha None is the model's default, target "" any: its accuracy is PyTorch's.

    `weights` is the name of a checkpoint, "" for the model's own; `given`: they come with their schedule. Without
    that, `mac_reduction` and `rho` it prunes nothing.
    """

    weights: str = OWN
    given: bool = False
    method: Method = Method.TOME
    scorer: str = "pairs"
    reduce: str = "merge-weighted"
    alpha: float | None = None
    mac_reduction: float | None = None
    rho: float | None = None
    target: str = ""

    @property
    def way(self) -> "Candidate":
        """What candidates have in common that differ in the share and the target alone: 0 stands for all shares."""
        return replace(self, mac_reduction=None if self.mac_reduction is None else 0.0, target="")

    @property
    def how(self) -> dict[str, Any]:
        """The settings by which it chooses patches."""
        return {name: getattr(self, name) for name in SCORING}

    @property
    def amount(self) -> Rho | MacShare | None:
        """How much it prunes; None for nothing, and where its schedule is given."""
        if self.rho is not None:
            return Rho(self.rho)
        return None if self.mac_reduction is None else MacShare(self.mac_reduction)

    @property
    def prunes(self) -> bool:
        """Whether it prunes anything."""
        return self.given or self.amount is not None

    @property
    def calibrated(self) -> bool:
        """Whether it needs a calibration."""
        return METHODS[self.method].follows_acs or scorer_named(self.scorer).calibrated

    @property
    def label(self) -> str:
        """A short name for people."""
        parts = [self.weights, *(self._how if self.prunes else ("unpruned",)), self.target]
        return ", ".join(part for part in parts if part)

    @property
    def _how(self) -> Iterator[str]:
        yield f"{self.method}, {self.scorer}, {self.reduce}"
        if self.alpha is not None:
            yield f"α {self.alpha:g}"
        if self.given:
            yield "as given"
        elif self.rho is not None:
            yield f"rho {self.rho:.4g}"
        elif self.mac_reduction is not None:
            yield f"{100 * self.mac_reduction:.3g}% saved"

    def on(self, target: str) -> "Candidate":
        """Return the same on a target."""
        return replace(self, target=target)


# The candidates that differ in the share alone, the smallest one first.
Way: TypeAlias = tuple[Candidate, ...]
# The model itself: in another precision or on another runtime, it is a candidate too.
UNPRUNED = Candidate()


def pinned(
    scoring: ScheduleSettings, amount: Rho | MacShare | None, weights: tuple[str, ...] = ()
) -> Mapping[str, Any]:
    """Return the axes with the values that a user gave alone, and all values of the others.

    Args:
        scoring: What is None is not pinned.
        amount: One amount in place of the axis of shares.
        weights: Names of checkpoints, beside the model's own weights.
    """
    axes = {**AXES, "weights": (OWN, *weights)}
    axes |= {name: (getattr(scoring, name),) for name in SCORING if getattr(scoring, name) is not None}
    if isinstance(amount, Rho):
        axes |= {"mac_reduction": (None,), "rho": (amount.rho,)}
    elif amount is not None:
        axes |= {"mac_reduction": (amount.mac_reduction,)}
    return axes


def suited(axes: Mapping[str, tuple[Any, ...]], spec: ModelSpec) -> Mapping[str, tuple[Any, ...]]:
    """Return the axes for a model: if its head reads no class token, the attention received replaces its row."""
    if spec.num_class_tokens or len(axes["scorer"]) == 1:
        return axes
    scorers = tuple(RECEIVED.name if each == INTRA.name else each for each in axes["scorer"])
    return {**axes, "scorer": scorers}


def candidates(
    axes: Mapping[str, tuple[Any, ...]] = AXES, given: Collection[Candidate] = ()
) -> tuple[Candidate, ...]:
    """Return all combinations that a method supports, without those that differ only in what they do not use.

    Other weights than the model's are tried unpruned too. The model itself is not among the candidates.

    Args:
        axes: Their values.
        given: Candidates whose weights come with their schedule: these weights are tried with no other.
    """
    fixed = {each.weights for each in given}
    every = (Candidate(**dict(zip(axes, values, strict=True))) for values in product(*axes.values()))
    unpruned = (Candidate(weights=name) for name in axes["weights"] if name not in (OWN, *fixed))
    return (
        *given,
        *unpruned,
        *(each for each in every if each.weights not in fixed and _makes_sense(each)),
    )


def ways(found: Iterable[Candidate]) -> list[Way]:
    """Return the candidates of each way, the smallest share first."""
    groups: dict[Candidate, list[Candidate]] = {}
    for each in sorted(found, key=lambda each: each.mac_reduction or 0.0):
        groups.setdefault(each.way, []).append(each)
    return [tuple(group) for group in groups.values()]


def _makes_sense(candidate: Candidate) -> bool:
    """Whether the method supports the score with the reduction; alpha is a choice of the fused score alone."""
    if candidate.alpha is not None and scorer_named(candidate.scorer).alpha is not None:
        return False
    try:
        ScheduleSettings(**candidate.how)
    except RecipeError:
        return False
    return True
