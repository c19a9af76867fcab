"""What a search expects: the time of a candidate, by one of its way that was timed, and of its own measurements."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from exporter.workflows.tuning.axes import Candidate
from exporter.workflows.tuning.budget import Budget

__all__ = ["Cost", "Costs", "Estimates"]

# The estimated time of a candidate, in ms.
Cost: TypeAlias = Callable[[Candidate], float]


@dataclass(frozen=True)
class Costs:
    """Milliseconds of a batch on the fastest target, by a line in the multiply-adds for each way.

    Multiply-adds alone do not tell: merging, sorting and scores take time that differs from way to way.

    Args:
        unpruned: Multiply-adds and milliseconds of the unpruned model: every line begins there.
        timed: The same of one candidate of each way, by the way. The time of another way is in proportion to its
            multiply-adds.
    """

    unpruned: tuple[float, float]
    timed: Mapping[Candidate, tuple[float, float]]

    def ms(self, candidate: Candidate, macs: float) -> float:
        """Return the estimated time of a candidate of so many multiply-adds."""
        whole, whole_ms = self.unpruned
        one, one_ms = self.timed.get(candidate.way, (0.0, 0.0))
        if one == whole:
            return one_ms
        return whole_ms + (whole - macs) / (whole - one) * (one_ms - whole_ms)


@dataclass(frozen=True, eq=False)
class Estimates:
    """The estimated time of a candidate, and what the time of the search is for."""

    cost: Cost
    budget: Budget
