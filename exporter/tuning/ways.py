"""The ways to prune, all of them: an axis is a row with the values that are tried, a candidate has one of each."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from types import MappingProxyType
from typing import Any, TypeAlias

from exporter.core.base.errors import RecipeError
from exporter.core.base.records import ModelSpec
from exporter.core.base.vocabulary import Method
from exporter.core.schedule.methods import INTRA, METHODS, RECEIVED, scorer_named
from exporter.core.schedule.policy import Need, Policy, resolve
from exporter.core.schedule.prune import Prune

# The model's own weights, among those of other checkpoints.
OWN = ""

# Values by axis; a recipe pins an axis by its setting of the same name. Weights and targets are added where they
# are given, and where they run.
AXES: Mapping[str, tuple[Any, ...]] = MappingProxyType(
    {
        "method": (Method.MATCHING, Method.STAR, Method.A_STAR),
        "scorer": ("token-pairs", "fused", "intra", "inter", "random"),
        "reduce": ("merge-weighted", "drop"),
        "alpha": (None, 0.5),
        "counts": (None,),
    }
)
# Shares of the multiply-adds to save, unless a recipe says how much.
SHARES = tuple(step / 20 for step in range(2, 15))


@dataclass(frozen=True)
class Candidate:
    """One value of each axis; target "" is any: its accuracy is PyTorch's.

    `prune` has every axis, and how much; None prunes nothing. `weights` is the name of a checkpoint, "" for the
    model's own; `given`: they come with their schedule, whose axes `prune` has.
    """

    prune: Prune | None = None
    weights: str = OWN
    given: bool = False
    target: str = ""

    def __hash__(self) -> int:
        # `Prune` has a table of rates, which has no hash.
        return hash(self.label)

    @property
    def calibrated(self) -> bool:
        """Whether it needs a calibration."""
        policy = self.policy
        reads = policy is not None and policy.needs & {Need.ACS, Need.INTER}
        return self.given or bool(reads)

    @property
    def policy(self) -> Policy | None:
        """What its settings mean; None prunes nothing."""
        return None if self.prune is None else resolve(self.prune)

    @property
    def label(self) -> str:
        """A short name for people."""
        return ", ".join(
            part for part in (self.weights, *self._how(), self.target) if part
        )

    def _how(self) -> Iterator[str]:
        prune, policy = self.prune, self.policy
        if prune is None or policy is None:
            yield "unpruned"
            return
        yield f"{policy.method}, {policy.scorer.name}, {policy.reduction.name}"
        if prune.alpha is not None:
            yield f"α {prune.alpha:g}"
        if prune.counts is not None:
            yield f"counts {prune.counts}"
        if self.given:
            yield "as given"
        elif prune.rho is not None:
            yield f"rho {prune.rho:.4g}"
        elif prune.mac_reduction is not None:
            yield f"{100 * prune.mac_reduction:.3g}% saved"

    def on(self, target: str) -> "Candidate":
        """Return the same on a target."""
        return replace(self, target=target)


# The candidates that differ in the share alone, the smallest one first.
Way: TypeAlias = tuple[Candidate, ...]
# The model itself: in another precision or on another runtime, it is a candidate too.
UNPRUNED = Candidate()


def ways_of(
    spec: ModelSpec,
    pinned: Prune,
    weights: Mapping[str, Candidate | None] = MappingProxyType({}),
) -> list[Way]:
    """Return all ways that a method supports, each once.

    Args:
        spec: If the model's head reads no class token, the attention received replaces its row.
        pinned: What it sets pins an axis; rho or a share of the multiply-adds takes the place of the shares.
        weights: Other checkpoints, which are tried unpruned too; or as the one candidate that their schedule says.
    """
    axes = _axes(spec, pinned)
    ways = list[Way]()
    for values in product(*axes.values()):
        way = _way(pinned, dict(zip(axes, values, strict=True)))
        if way:
            ways.append(way)
    if not ways:
        choices = "; ".join(
            f"{name}: {', '.join(method.scorers)}" for name, method in METHODS.items()
        )
        raise RecipeError(
            "tune", "settings that do not go together", f"scores by method: {choices}"
        )
    of_weights = list[Way]()
    for name, scheduled in weights.items():
        if scheduled is not None:
            of_weights.append((scheduled,))
            continue
        of_weights.append((Candidate(weights=name),))
        for way in ways:
            of_weights.append(tuple(replace(share, weights=name) for share in way))
    return [*ways, *of_weights]


def _axes(spec: ModelSpec, pinned: Prune) -> dict[str, tuple[Any, ...]]:
    """Return the values of each axis that are tried."""
    axes = dict(AXES)
    for name in AXES:
        value = getattr(pinned, name)
        if value is not None:
            axes[name] = (value,)
    if pinned.method is not None and pinned.scorer is None:
        scorers = METHODS[pinned.method].scorers
        tried = tuple(scorer for scorer in axes["scorer"] if scorer in scorers)
        axes["scorer"] = tried or scorers[:1]
    if not spec.num_class_tokens and pinned.scorer is None:
        axes["scorer"] = tuple(
            RECEIVED.name if scorer == INTRA.name else scorer
            for scorer in axes["scorer"]
        )
    return axes


def _way(pinned: Prune, values: Mapping[str, Any]) -> Way:
    """Return a way by its axes; nothing unless its method supports them, and alpha is for the fused score alone."""
    scorer = scorer_named(values["scorer"])
    if values["alpha"] is not None and scorer.alpha is not None:
        return ()
    try:
        prune = replace(pinned, **values)
        policy = resolve(prune)
    except RecipeError:
        return ()
    if policy.amount.is_said:
        return (Candidate(prune),)
    return tuple(Candidate(replace(prune, mac_reduction=share)) for share in SHARES)
