"""Ways to reduce the patches that a layer does not keep: an open vocabulary, one frozen row each."""

from dataclasses import dataclass

from exporter.errors import RecipeError

__all__ = ["DROP", "MERGE", "MERGE_WEIGHTED", "REDUCTIONS", "Reduction", "reduction_named"]


@dataclass(frozen=True)
class Reduction:
    """One way to reduce tokens.

    `merges`: every patch that is not kept is averaged into a survivor, weighted by token sizes; else it is dropped.
    `weighs_keys`: the logarithm of a token's size is added to every attention logit of its key.
    """

    name: str
    merges: bool = False
    weighs_keys: bool = False


DROP = Reduction("drop")
MERGE = Reduction("merge", merges=True)
# ToMe's proportional attention (section 3, equation 1).
MERGE_WEIGHTED = Reduction("merge-weighted", merges=True, weighs_keys=True)

REDUCTIONS = {each.name: each for each in (DROP, MERGE, MERGE_WEIGHTED)}


def reduction_named(name: str) -> Reduction:
    """Return the row of that name; RecipeError with the known names if there is none."""
    if name not in REDUCTIONS:
        raise RecipeError("reduction", repr(name), f"one of {', '.join(REDUCTIONS)}")
    return REDUCTIONS[name]
