"""What each method combines: its scores and its reductions, the default one first."""

from dataclasses import dataclass

from exporter.errors import RecipeError
from exporter.schedule.reductions import reduction_named
from exporter.schedule.scorers import scorer_named
from exporter.vocabulary import Method

__all__ = ["METHODS", "Choices", "check_choices", "default_scorer"]


@dataclass(frozen=True)
class Choices:
    """The rows of `exporter.schedule.scorers` and of `exporter.schedule.reductions` that a method supports.

    `follows_acs`: rates follow from ACS and rho; otherwise from rho alone.
    """

    scorers: tuple[str, ...]
    reductions: tuple[str, ...]
    follows_acs: bool = True


_BY_IMAGE = Choices(("fused", "intra", "inter", "random"), ("drop",))

METHODS = {
    # Not the paper's fused and drop: docs/accuracy.md compares them.
    Method.STAR: Choices(("pairs", "fused", "intra", "inter", "random"), ("merge-weighted", "merge", "drop")),
    Method.A_STAR: _BY_IMAGE,
    Method.A_STAR_BATCH: _BY_IMAGE,
    Method.TOME: Choices(("pairs",), ("merge-weighted", "merge"), follows_acs=False),
}


def default_scorer(method: Method, reduction: str | None, *, weighed: bool) -> str:
    """Return the first score of the method that the reduction, None for the default one, can be combined with.

    `weighed`: an alpha is given, which only the fused score weighs.
    """
    scorers = METHODS[method].scorers
    merges = reduction is None or reduction_named(reduction).merges
    rows = [row for row in map(scorer_named, scorers) if merges or not row.pairs]
    return next((row.name for row in rows if row.alpha is None or not weighed), scorers[0])


def check_choices(method: Method, scorer: str, reduction: str) -> None:
    """Raise RecipeError unless the rows exist, and the method supports this score with this reduction."""
    pairs, merges = scorer_named(scorer).pairs, reduction_named(reduction).merges
    choices = METHODS[method]
    if scorer not in choices.scorers:
        raise RecipeError("scorer", f"{scorer} for {method}", f"one of {', '.join(choices.scorers)}")
    if reduction not in choices.reductions:
        hint = "its counts depend on the image" if method.counts_vary else ""
        raise RecipeError("reduce", f"{reduction} for {method}", " or ".join(choices.reductions), hint)
    if pairs and not merges:
        raise RecipeError("reduce", f"{reduction} for the scorer {scorer}", "merge", "pairs are merged")
