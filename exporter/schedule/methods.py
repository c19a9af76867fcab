"""What each method combines: its scores and its reductions, the default one first."""

from dataclasses import dataclass

from exporter.errors import RecipeError
from exporter.schedule.reductions import reduction_named
from exporter.schedule.scorers import scorer_named
from exporter.vocabulary import Method

__all__ = ["METHODS", "Choices", "check_choices", "default_method", "default_reduction"]


@dataclass(frozen=True)
class Choices:
    """The rows of `exporter.schedule.scorers` and of `exporter.schedule.reductions` that a method supports.

    `follows_acs`: rates follow from ACS and rho; otherwise from rho alone.
    """

    scorers: tuple[str, ...]
    reductions: tuple[str, ...]
    follows_acs: bool = True


_SCORES = ("fused", "intra", "inter", "random", "received", "probe", "similarity")
_BY_IMAGE = Choices(_SCORES, ("drop",))

METHODS = {
    Method.STAR: Choices((*_SCORES, "pairs"), ("drop", "merge-weighted", "merge")),
    Method.A_STAR: _BY_IMAGE,
    Method.A_STAR_BATCH: _BY_IMAGE,
    Method.TOME: Choices(("pairs",), ("merge-weighted", "merge"), follows_acs=False),
}


def default_method(scorer: str | None, reduction: str | None, *, star_alone: bool) -> Method:
    """Return ToMe, which loses least (docs/accuracy.md); STAR where anything is given that ToMe does not use.

    None: not given. `star_alone`: a setting or a file is given that only STAR uses.
    """
    choices = METHODS[Method.TOME]
    fits = scorer in (None, *choices.scorers) and reduction in (None, *choices.reductions)
    return Method.TOME if fits and not star_alone else Method.STAR


def default_reduction(method: Method, scorer: str) -> str:
    """Return the first reduction of the method that the score can be combined with: pairs cannot be dropped."""
    reductions, pairs = METHODS[method].reductions, scorer_named(scorer).pairs
    return next((name for name in reductions if reduction_named(name).merges or not pairs), reductions[0])


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
