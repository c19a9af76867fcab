"""Ways to reduce the patches that a layer does not keep: an open vocabulary, one frozen row each."""

from dataclasses import dataclass

from exporter.errors import RecipeError
from exporter.vocabulary import Method

__all__ = ["REDUCTIONS", "Reduction", "check_reduction", "reduction_named"]


@dataclass(frozen=True)
class Reduction:
    """One way to reduce tokens.

    `merges`: every patch that is not kept is averaged into a survivor, weighted by token sizes; else it is dropped.
    `weighs_keys`: the logarithm of a token's size is added to every attention logit of its key.
    """

    name: str
    merges: bool = False
    weighs_keys: bool = False


REDUCTIONS = {each.name: each for each in (Reduction("drop"), Reduction("merge", merges=True))}


def reduction_named(name: str) -> Reduction:
    """Return the row of that name; RecipeError with the known names if there is none."""
    if name not in REDUCTIONS:
        raise RecipeError("reduction", repr(name), f"one of {', '.join(REDUCTIONS)}")
    return REDUCTIONS[name]


def check_reduction(name: str, method: Method) -> None:
    """Raise RecipeError unless the row exists and the method supports it."""
    if reduction_named(name).merges and method != Method.STAR:
        raise RecipeError(
            "reduction", f"{name} for {method}", "drop", "only star keeps equally many of every image"
        )
