"""The ways to prune, all of them: an axis is a row with the values that are tried, a candidate has one of each."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from types import MappingProxyType
from typing import Any, TypeAlias

from exporter.errors import RecipeError
from exporter.records import ModelSpec
from exporter.schedule.methods import ACS, INTRA, METHODS, RECEIVED, SEARCH, scorer_named
from exporter.schedule.prune import Prune
from exporter.vocabulary import Method

# The model's own weights, among those of other checkpoints.
OWN = ""

# Values by axis, "mac_reduction" the share of the multiply-adds to save. Weights and targets are added where they
# are given, and where they run.
AXES: Mapping[str, tuple[Any, ...]] = MappingProxyType(
    {
        "method": (Method.MATCHING, Method.STAR, Method.A_STAR),
        "scorer": ("token-pairs", "fused", "intra", "inter", "random"),
        "reduce": ("merge-weighted", "drop"),
        "alpha": (None, 0.5),
        "counts": (None,),
        "mac_reduction": tuple(step / 20 for step in range(2, 15)),
    }
)
# The axes that a recipe can pin by its settings of the same name. A schedule has all but its counts' name.
SCORING = ("method", "scorer", "reduce", "alpha")
HOW = (*SCORING, "counts")
AMOUNT = ("rho", "mac_reduction")


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One value of each axis; alpha None is the model's default, target "" any: its accuracy is PyTorch's.

    Without `counts` the method has its own.

    `weights` is the name of a checkpoint, "" for the model's own; `given`: they come with their schedule. Without
    that, `mac_reduction` and `rho` it prunes nothing.
    """

    weights: str = OWN
    given: bool = False
    method: Method = Method.MATCHING
    scorer: str = "token-pairs"
    reduce: str = "merge-weighted"
    alpha: float | None = None
    counts: str | None = None
    mac_reduction: float | None = None
    rho: float | None = None
    target: str = ""

    @property
    def how(self) -> dict[str, Any]:
        """The settings by which it chooses patches."""
        return {name: getattr(self, name) for name in HOW}

    @property
    def settings(self) -> dict[str, Any]:
        """The settings by which it chooses patches, and how many; rho stands over the share of its axis."""
        share = self.mac_reduction if self.rho is None else None
        return {**self.how, "rho": self.rho, "mac_reduction": share}

    @property
    def prunes(self) -> bool:
        """Whether it prunes anything."""
        return self.given or (self.mac_reduction, self.rho) != (None, None)

    @property
    def calibrated(self) -> bool:
        """Whether it needs a calibration."""
        counts = self.counts or METHODS[self.method].counts[0]
        followed = counts == ACS or scorer_named(self.scorer).calibrated
        return self.given or (self.prunes and followed)

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
        if self.counts is not None:
            yield f"counts {self.counts}"
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


def candidates(
    spec: ModelSpec,
    scoring: Prune,
    weights: Mapping[str, Candidate | None] = MappingProxyType({}),
) -> tuple[Candidate, ...]:
    """Return all combinations that a method supports, each once.

    Args:
        spec: If the model's head reads no class token, the attention received replaces its row.
        scoring: What it sets pins an axis; rho or a share of the multiply-adds takes the place of the shares.
        weights: Other checkpoints, which are tried unpruned too; or as the one candidate that their schedule says.
    """
    if scoring.counts == SEARCH:
        raise RecipeError("counts", f"{SEARCH} for tune", "acs or a shape", "compile searches, for one model")
    pinned = {name: getattr(scoring, name) for name in AMOUNT} if scoring.has_number else {}
    axes = dict(AXES) | ({"mac_reduction": (None,)} if pinned else {})
    axes |= {name: (getattr(scoring, name),) for name in HOW if getattr(scoring, name) is not None}
    if scoring.method is not None and scoring.scorer is None:
        scorers = METHODS[scoring.method].scorers
        axes["scorer"] = tuple(each for each in axes["scorer"] if each in scorers) or scorers[:1]
    if not spec.num_class_tokens and scoring.scorer is None:
        axes["scorer"] = tuple(RECEIVED.name if each == INTRA.name else each for each in axes["scorer"])
    every = (Candidate(**dict(zip(axes, values, strict=True)) | pinned) for values in product(*axes.values()))
    found = tuple(each for each in every if _makes_sense(each, pinned=scoring.method))
    if not found:
        choices = "; ".join(f"{name}: {', '.join(each.scorers)}" for name, each in METHODS.items())
        raise RecipeError("tune", "settings that do not go together", f"scores by method: {choices}")
    others = (
        (given,) if given else (Candidate(weights=name), *(replace(each, weights=name) for each in found))
        for name, given in weights.items()
    )
    return (*found, *(each for group in others for each in group))


def ways_of(found: Iterable[Candidate]) -> list[Way]:
    """Return the candidates of each way, in their order."""
    groups: dict[Candidate, list[Candidate]] = {}
    for each in found:
        way = each if each.mac_reduction is None else replace(each, mac_reduction=0.0)
        groups.setdefault(way, []).append(each)
    return [tuple(group) for group in groups.values()]


def _makes_sense(candidate: Candidate, pinned: Method | None) -> bool:
    """Whether the method supports the score, the reduction and the counts; alpha is for the fused score alone.

    STAR's pairs at other counts than its own are those of matching.
    """
    scorer = scorer_named(candidate.scorer)
    if candidate.alpha is not None and scorer.alpha is not None:
        return False
    if scorer.pairs and candidate.method == Method.STAR != pinned and candidate.counts not in (None, ACS):
        return False
    try:
        Prune(**candidate.how)
    except RecipeError:
        return False
    return True
