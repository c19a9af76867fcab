"""What each method combines: its scores, their factors, its reductions; one frozen row each, the default one first.

A score has two factors: what a layer sees of the image's own patches (intra), and a table with one number per layer
and patch position (inter). A weighted sum of their logarithms fuses them. Pairs need neither: they compare patches.
 `exporter.core.prune.scores` computes the intra-layer factors. Each is added to an unchanged attention, so its
multiply-adds count apart.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from exporter.core.base.errors import RecipeError
from exporter.core.base.records import ModelSpec
from exporter.core.base.vocabulary import Method
from exporter.core.schedule.rates import Curve, same_number, same_share


def _nothing(_spec: ModelSpec) -> str:
    return ""


# Models keep their factors, and are pickled, as lambdas cannot be.
@dataclass(frozen=True)
class Factor:
    """One factor.

    `macs` gives the multiply-adds in one layer of so many tokens, of which every so many-th is a query. `lacks`
    says what a model lacks for it, "" for nothing. `strided`: queries can be left out.
    """

    name: str
    macs: Callable[[ModelSpec, int, int], int]
    lacks: Callable[[ModelSpec], str] = _nothing
    strided: bool = False


def _no_class_row(spec: ModelSpec) -> str:
    return "" if spec.num_class_tokens else "no class token that the head reads"


def _no_probe(spec: ModelSpec) -> str:
    return "" if spec.probe_rows else "no attention pooling, whose query is the probe"


def _class_macs(spec: ModelSpec, tokens: int, _stride: int) -> int:
    return spec.num_class_tokens * tokens * spec.dim


def _received_macs(spec: ModelSpec, tokens: int, stride: int) -> int:
    return -(-tokens // stride) * tokens * spec.dim


def _probe_macs(spec: ModelSpec, tokens: int, _stride: int) -> int:
    return spec.probe_rows * (tokens - spec.num_prefix_tokens) * spec.dim


def _similarity_macs(spec: ModelSpec, tokens: int, _stride: int) -> int:
    return (tokens - spec.num_prefix_tokens) * spec.dim // spec.num_heads


# The attention of the class tokens.
CLASS = Factor("class", _class_macs, _no_class_row)
# The mean attention that a patch receives.
RECEIVED = Factor("received", _received_macs, strided=True)
# The attention of the pooling's own query to the patches, as if the layer were the last.
PROBE = Factor("probe", _probe_macs, _no_probe)
# How little a patch resembles the others: a product with their mean direction, as long as a head's key.
SIMILARITY = Factor("similarity", _similarity_macs)


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

REDUCTIONS = {row.name: row for row in (DROP, MERGE, MERGE_WEIGHTED)}


def reduction_named(name: str) -> Reduction:
    """Return the row of that name; RecipeError with the known names if there is none."""
    if name not in REDUCTIONS:
        raise RecipeError("reduction", repr(name), f"one of {', '.join(REDUCTIONS)}")
    return REDUCTIONS[name]


@dataclass(frozen=True)
class Scorer:
    """A way to score patches.

    `alpha` is the weight of the intra-layer factor; None: the schedule's. `calibrated`: the table comes from a
    calibration; otherwise it is noise drawn by the schedule's seed. `factor`: the intra-layer factor; None: the
    model's. `pairs`: there is no score of this form; the patches that resemble their partner least stay
    (`core.prune.ops.merging`), by their mean keys, or `by_tokens` by the tokens themselves and their sizes.
    """

    name: str
    alpha: float | None
    calibrated: bool
    factor: Factor | None = None
    pairs: bool = False
    by_tokens: bool = False

    def weight(self, alpha: float) -> float:
        """Return the weight of the intra-layer factor, given the schedule's `alpha`; at 1 the table is not used."""
        return alpha if self.alpha is None else self.alpha

    def factor_of(self, spec: ModelSpec) -> Factor:
        """Return the intra-layer factor; unless it is fixed, the class tokens' attention where a model has them."""
        return self.factor or (CLASS if spec.num_class_tokens else RECEIVED)


FUSED = Scorer("fused", alpha=None, calibrated=True)
INTRA = Scorer("intra", alpha=1.0, calibrated=False, factor=CLASS)
INTER = Scorer("inter", alpha=0.0, calibrated=True)
RANDOM = Scorer("random", alpha=0.0, calibrated=False)
# ToMe's, by keys (section 3), and ours, by tokens: the fewer patches stay, the less the answers change by them.
PAIRS = Scorer("pairs", alpha=1.0, calibrated=False, pairs=True)
TOKEN_PAIRS = replace(PAIRS, name="token-pairs", by_tokens=True)
# For models without a class token, and others.
_OWN = tuple(
    Scorer(factor.name, alpha=1.0, calibrated=False, factor=factor)
    for factor in (RECEIVED, PROBE, SIMILARITY)
)

SCORERS = {
    scorer.name: scorer
    for scorer in (FUSED, INTRA, INTER, RANDOM, *_OWN, PAIRS, TOKEN_PAIRS)
}


def scorer_named(name: str) -> Scorer:
    """Return the row of that name; RecipeError with the known names if there is none."""
    if name not in SCORERS:
        raise RecipeError("scorer", repr(name), f"one of {', '.join(SCORERS)}")
    return SCORERS[name]


@dataclass(frozen=True)
class Choices:
    """The scores and the reductions that a method supports, the default ones first, and how its counts fall.

    `curve` needs no calibration; None: rates follow from ACS.
    """

    scorers: tuple[str, ...]
    reductions: tuple[str, ...]
    curve: Curve | None = None


_SCORES = ("fused", "intra", "inter", "random", "received", "probe", "similarity")
_MERGES = ("merge-weighted", "merge")

METHODS = {
    Method.MATCHING: Choices(("token-pairs",), _MERGES, same_share),
    Method.STAR: Choices((*_SCORES, "token-pairs", "pairs"), ("drop", *_MERGES)),
    Method.A_STAR: Choices(_SCORES, ("drop",)),
    Method.TOME: Choices(("pairs",), _MERGES, same_number),
}


def default_method(
    scorer: str | None, reduction: str | None, *, star_alone: bool
) -> Method:
    """Return matching, or ToMe for its pairs: where measured, merging loses less (docs/results.md).

    STAR where anything is given that neither uses. None: not given. `star_alone`: a setting or a file is given that
    only STAR uses.
    """
    for method in (Method.MATCHING, Method.TOME):
        choices = METHODS[method]
        fits = scorer in (None, *choices.scorers)
        fits = fits and reduction in (None, *choices.reductions)
        if fits and not star_alone:
            return method
    return Method.STAR


def default_reduction(method: Method, scorer: Scorer) -> Reduction:
    """Return the first reduction of the method that the score can be combined with: pairs cannot be dropped."""
    reductions = [REDUCTIONS[name] for name in METHODS[method].reductions]
    merges = [reduction for reduction in reductions if reduction.merges]
    return merges[0] if scorer.pairs and merges else reductions[0]


def check_choices(method: Method, scorer: Scorer, reduction: Reduction) -> None:
    """Raise RecipeError unless the method supports this score with this reduction."""
    choices = METHODS[method]
    if scorer.name not in choices.scorers:
        expected = f"one of {', '.join(choices.scorers)}"
        raise RecipeError("scorer", f"{scorer.name} for {method}", expected)
    if reduction.name not in choices.reductions:
        hint = "its counts depend on the image" if method.adaptive else ""
        expected = " or ".join(choices.reductions)
        raise RecipeError("reduce", f"{reduction.name} for {method}", expected, hint)
    if scorer.pairs and not reduction.merges:
        got = f"{reduction.name} for the scorer {scorer.name}"
        raise RecipeError("reduce", got, "merge", "pairs are merged")


def check_stride(scorer: Scorer, stride: int) -> None:
    """Raise RecipeError for a stride of queries where the score reads no more than the class tokens'."""
    strided = scorer.alpha is None if scorer.factor is None else scorer.factor.strided
    if stride != 1 and not strided:
        got = f"{stride} for the scorer {scorer.name}"
        raise RecipeError("query_stride", got, "1", "received can be sampled")


def check_factor(scorer: Scorer, spec: ModelSpec, stride: int = 1) -> None:
    """Raise RecipeError where the score reads something that the model lacks, or no queries to leave out."""
    factor = scorer.factor_of(spec)
    if stride != 1 and not factor.strided:
        got = f"{stride} for {spec.name}, whose class token scores its patches"
        raise RecipeError(
            "query_stride", got, "1", "the scorer received can be sampled"
        )
    if scorer.alpha == 0.0 or scorer.pairs or not factor.lacks(spec):
        return
    fits = [row.name for row in SCORERS.values() if not row.factor_of(spec).lacks(spec)]
    got = f"{scorer.name} for {spec.name}, which has {factor.lacks(spec)}"
    raise RecipeError("scorer", got, f"one of {', '.join(fits)}")
