"""The ways to prune that a search tries: each method at its defaults, and what a recipe pins."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypeAlias

from exporter.core.base.errors import RecipeError
from exporter.core.base.vocabulary import Method
from exporter.core.schedule.methods import METHODS
from exporter.core.schedule.policy import Need, Policy, resolve
from exporter.core.schedule.prune import Prune

# The model's own weights, among those of other checkpoints.
OWN = ""

# The settings that a recipe or a flag can pin.
AXES = ("method", "scorer", "reduce", "alpha", "merges")
# What is tried of all that a recipe leaves open: the methods that merge, at their defaults, and matching with one
# merge, which takes the fewest steps.
TRIED = (
    Prune(method=Method.MATCHING),
    Prune(method=Method.MATCHING, merges=1),
    Prune(method=Method.TOME),
)
# Those that drop lose more (docs/results.md), and a calibration takes longer than all else: only where they are
# pinned, or a score of theirs.
DROPPING = (Prune(method=Method.STAR), Prune(method=Method.A_STAR))
# Shares of the multiply-adds to save, unless a recipe says how much.
SHARES = tuple(step / 20 for step in range(2, 15))


@dataclass(frozen=True)
class Candidate:
    """How to prune which weights, and where; target "" is any: its accuracy is PyTorch's.

    `prune` says how, and how much; None prunes nothing. `weights` is the name of a checkpoint, "" for the
    model's own; `given`: they come with their schedule, which `prune` names.
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
        yield str(policy.method)
        yield from (said for said in (prune.scorer, prune.reduce) if said is not None)
        if prune.alpha is not None:
            yield f"α {prune.alpha:g}"
        if prune.merges is not None:
            yield f"merges {prune.merges}"
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
    pinned: Prune, weights: Mapping[str, Candidate | None] = MappingProxyType({})
) -> list[Way]:
    """Return the ways that are tried, each once.

    Args:
        pinned: What it sets stands in every way; rho or a share of the multiply-adds takes the place of the shares.
        weights: Other checkpoints, which are tried unpruned too; or as the one candidate that their schedule says.
    """
    ways = _ways(pinned, TRIED) or _ways(pinned, DROPPING)
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


def _ways(pinned: Prune, tried: Sequence[Prune]) -> list[Way]:
    """Return each way that goes with what is pinned, once."""
    ways = [_way(pinned, prune) for prune in tried]
    return [way for way in dict.fromkeys(ways) if way]


def _way(pinned: Prune, tried: Prune) -> Way:
    """Return a way that is tried, with what is pinned; nothing where they do not go together."""
    said = {name: getattr(pinned, name) for name in AXES}
    prune = replace(
        pinned,
        **{
            name: getattr(tried, name) if value is None else value
            for name, value in said.items()
        },
    )
    try:
        policy = resolve(prune)
    except RecipeError:
        return ()
    if policy.amount.is_said:
        return (Candidate(prune),)
    return tuple(Candidate(replace(prune, mac_reduction=share)) for share in SHARES)
