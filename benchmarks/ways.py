"""The ways to prune that the comparisons of accuracy tell apart, by the name that tables give them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from exporter.core.base.records import ModelSpec
from exporter.core.base.vocabulary import Method
from exporter.core.schedule.prune import Prune


@dataclass(frozen=True)
class Way:
    """How patches are chosen and reduced; `manual` prunes three layers at one rate, as DynamicViT and EViT do."""

    scoring: Prune
    manual: bool = False

    def rates(self, depth: int) -> dict[int, float]:
        """Return the proportions of the rates, as a recipe has them; {} where they follow from the method."""
        if self.manual:
            return {depth * quarter // 4 + 1: 0.7 for quarter in (1, 2, 3)}
        return {}

    @property
    def counts_of_star(self) -> bool:
        """Whether it keeps as many patches as STAR at the same rho."""
        return self.scoring.method == Method.STAR and not self.manual


def _star(scorer: str, reduce: str, *, manual: bool = False) -> Way:
    return Way(Prune(scorer, method=Method.STAR, reduce=reduce), manual)


WAYS: Mapping[str, Way] = {
    "ToMe": Way(Prune(method=Method.TOME)),
    "pairs, merge-weighted": _star("pairs", "merge-weighted"),
    "fused, merge-weighted": _star("fused", "merge-weighted"),
    "fused, merge": _star("fused", "merge"),
    "fused, drop": _star("fused", "drop"),
    "fused, drop, manual rates": _star("fused", "drop", manual=True),
    "a-STAR": Way(Prune("fused", method=Method.A_STAR)),
    "class attention, merge-weighted": _star("intra", "merge-weighted"),
    "class attention, drop": _star("intra", "drop"),
    "inter-layer, drop": _star("inter", "drop"),
    "random, merge-weighted": _star("random", "merge-weighted"),
    "random, drop": _star("random", "drop"),
}

# Where no class token is read.
RECEIVED: Mapping[str, Way] = {
    "attention received, merge-weighted": _star("received", "merge-weighted"),
    "attention received, drop": _star("received", "drop"),
    "received from every 8th, drop": Way(
        replace(_star("received", "drop").scoring, query_stride=8)
    ),
    "dissimilarity, merge-weighted": _star("similarity", "merge-weighted"),
    "dissimilarity, drop": _star("similarity", "drop"),
}


def ways_of(spec: ModelSpec) -> Mapping[str, Way]:
    """Return the ways to prune a model: without a class token, the attention received replaces its row."""
    if spec.num_class_tokens:
        return WAYS
    return {
        name: how
        for name, how in {**WAYS, **RECEIVED}.items()
        if how.scoring.scorer != "intra"
    }
