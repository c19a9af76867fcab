"""The ways to prune that the comparisons of accuracy tell apart, by the name that tables give them."""

from collections.abc import Mapping
from dataclasses import replace

from exporter.records import ModelSpec
from exporter.schedule.plan import ScheduleSettings
from exporter.vocabulary import Method

__all__ = ["WAYS", "ways_of"]


def _star(scorer: str, reduce: str) -> ScheduleSettings:
    """Return STAR's rates with a score, and what becomes of the patches that are not kept."""
    return ScheduleSettings(scorer, method=Method.STAR, reduce=reduce)


WAYS: Mapping[str, ScheduleSettings] = {
    "ToMe": ScheduleSettings(method=Method.TOME),
    "pairs, merge-weighted": _star("pairs", "merge-weighted"),
    "fused, merge-weighted": _star("fused", "merge-weighted"),
    "fused, merge": _star("fused", "merge"),
    "fused, drop": _star("fused", "drop"),
    "a-STAR": ScheduleSettings("fused", method=Method.A_STAR),
    "class attention, merge-weighted": _star("intra", "merge-weighted"),
    "class attention, drop": _star("intra", "drop"),
    "inter-layer, drop": _star("inter", "drop"),
    "random, merge-weighted": _star("random", "merge-weighted"),
    "random, drop": _star("random", "drop"),
}

# Where no class token is read.
_RECEIVED: Mapping[str, ScheduleSettings] = {
    "attention received, merge-weighted": _star("received", "merge-weighted"),
    "attention received, drop": _star("received", "drop"),
    "received from every 8th, drop": replace(_star("received", "drop"), query_stride=8),
    "dissimilarity, merge-weighted": _star("similarity", "merge-weighted"),
    "dissimilarity, drop": _star("similarity", "drop"),
}


def ways_of(spec: ModelSpec) -> Mapping[str, ScheduleSettings]:
    """Return the ways to prune a model: without a class token, the attention received replaces its row."""
    if spec.num_class_tokens:
        return WAYS
    return {name: how for name, how in {**WAYS, **_RECEIVED}.items() if how.scorer != "intra"}
