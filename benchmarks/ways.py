"""The ways to prune that the comparisons of accuracy tell apart, by the name that tables give them."""

from collections.abc import Mapping

from exporter.schedule.plan import ScheduleSettings
from exporter.vocabulary import Method

__all__ = ["WAYS"]


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
