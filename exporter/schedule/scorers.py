"""Scores by which patches are chosen: one frozen row each.

A score has two factors: what a layer sees of the image's own patches (intra, `exporter.schedule.factors`), and a
table with one number per layer and patch position (inter). A weighted sum of their logarithms fuses them. ToMe's
pairs need neither: they compare keys.
"""

from dataclasses import dataclass

from exporter.errors import RecipeError
from exporter.records import ModelSpec
from exporter.schedule.factors import CLASS, PROBE, RECEIVED, SIMILARITY, Factor

__all__ = ["FUSED", "INTER", "INTRA", "PAIRS", "RANDOM", "SCORERS", "Scorer", "scorer_named"]


@dataclass(frozen=True)
class Scorer:
    """A way to score patches.

    `alpha` is the weight of the intra-layer factor; None: the schedule's. `calibrated`: the table comes from a
    calibration; otherwise it is noise drawn by the schedule's seed. `factor`: the intra-layer factor; None: the
    model's. `pairs`: there is no score of this form; the patches that resemble their partner least stay
    (`exporter.ops.pairing`).
    """

    name: str
    alpha: float | None
    calibrated: bool
    factor: Factor | None = None
    pairs: bool = False

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
PAIRS = Scorer("pairs", alpha=1.0, calibrated=False, pairs=True)
# For models without a class token, and others.
_OWN = tuple(
    Scorer(factor.name, alpha=1.0, calibrated=False, factor=factor)
    for factor in (RECEIVED, PROBE, SIMILARITY)
)

SCORERS = {scorer.name: scorer for scorer in (FUSED, INTRA, INTER, RANDOM, *_OWN, PAIRS)}


def scorer_named(name: str) -> Scorer:
    """Return the row of that name; RecipeError with the known names if there is none."""
    if name not in SCORERS:
        raise RecipeError("scorer", repr(name), f"one of {', '.join(SCORERS)}")
    return SCORERS[name]
