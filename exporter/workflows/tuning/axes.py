"""The axes of the search: one row each, with the values that it tries. A candidate has one value of each."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from types import MappingProxyType
from typing import Any

from exporter.errors import RecipeError
from exporter.schedule.methods import METHODS
from exporter.schedule.plan import ScheduleSettings
from exporter.schedule.scorers import scorer_named
from exporter.vocabulary import Method

__all__ = ["AXES", "UNPRUNED", "Candidate", "candidates", "ways"]

# Values by axis. Those of the first four are fields of `ScheduleSettings`; "mac_reduction" is the share of the
# multiply-adds to save; targets are added where they run.
AXES: Mapping[str, tuple[Any, ...]] = MappingProxyType(
    {
        "method": (Method.TOME, Method.STAR, Method.A_STAR),
        "scorer": ("pairs", "fused", "intra", "inter", "random"),
        "reduce": ("merge-weighted", "drop"),
        "alpha": (None, 0.5),
        "mac_reduction": (0.1, 0.2, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6),
    }
)


@dataclass(frozen=True)
class Candidate:
    """One value of each axis; alpha None is the model's default, target "" any: its accuracy is PyTorch's."""

    method: Method
    scorer: str
    reduce: str
    alpha: float | None
    mac_reduction: float
    target: str = ""

    @property
    def scoring(self) -> ScheduleSettings:
        """How it chooses patches."""
        return ScheduleSettings(self.scorer, method=self.method, reduce=self.reduce, alpha=self.alpha)

    @property
    def calibrated(self) -> bool:
        """Whether it needs a calibration."""
        return METHODS[self.method].follows_acs or scorer_named(self.scorer).calibrated

    @property
    def label(self) -> str:
        """A short name for people."""
        if not self.mac_reduction:
            return f"unpruned, {self.target}" if self.target else "unpruned"
        alpha = "" if self.alpha is None else f", α {self.alpha:g}"
        target = f", {self.target}" if self.target else ""
        return f"{self.method}, {self.scorer}, {self.reduce}{alpha}, {self.mac_reduction:.0%} saved{target}"

    def on(self, target: str) -> "Candidate":
        """Return the same on a target."""
        return replace(self, target=target)


# ToMe at rho 1 merges nothing: the model in another precision, or on another runtime.
UNPRUNED = Candidate(Method.TOME, "pairs", "merge-weighted", None, 0.0)


def candidates(axes: Mapping[str, tuple[Any, ...]] = AXES) -> tuple[Candidate, ...]:
    """Return all combinations that a method supports, without those that differ only in what they do not use."""
    every = (Candidate(**dict(zip(axes, values, strict=True))) for values in product(*axes.values()))
    return tuple(each for each in every if _makes_sense(each))


def ways(found: tuple[Candidate, ...]) -> Iterator[tuple[Candidate, ...]]:
    """Yield the candidates that differ in the share alone, together."""
    groups: dict[Candidate, list[Candidate]] = {}
    for each in found:
        groups.setdefault(replace(each, mac_reduction=0.0), []).append(each)
    yield from map(tuple, groups.values())


def _makes_sense(candidate: Candidate) -> bool:
    """Whether the method supports the score with the reduction; alpha is a choice of the fused score alone."""
    if candidate.alpha is not None and scorer_named(candidate.scorer).alpha is not None:
        return False
    try:
        _ = candidate.scoring
    except RecipeError:
        return False
    return True
