"""The race of ways: accuracy falls smoothly with the share, so two shares tell which ways deserve all of them."""

from collections.abc import Hashable, Mapping, Sequence
from math import ceil
from typing import Any

import numpy as np

from exporter.workflows.progress import Advance
from exporter.workflows.tuning.accuracy import AccuracyMeter, parts
from exporter.workflows.tuning.axes import Candidate, Way

__all__ = ["probes", "raced", "timing_order"]

Array = np.ndarray[Any, Any]

# The places of the two shares among all: a mild and a hard one.
PROBES = (0.25, 0.75)
# Ways of a class that are left.
LEFT = 2


def raced(
    meter: AccuracyMeter, every: Sequence[Way], *, until_s: float, image_s: float, advance: Advance
) -> list[Way]:
    """Return the ways that lose least on two shares: each stage doubles the images and halves the ways.

    Of equal multiply-adds, merging takes longer than dropping. So ways compete within a class, with those that
    have the same weights and do the same with the other patches; two of each are left.

    Args:
        meter: Has the search half.
        every: The ways; those of a single share take no part and are left, as all are without time for a stage.
        until_s: No stage begins that would end after so much measured time. Where one share alone fits, it is the
            hard one.
        image_s: What one image takes.
        advance: Shows progress in stages.
    """
    ledger, stages = meter.bench.ledger, list(parts(len(meter.images.files)))
    left, right = list(every), {way: np.zeros(0, bool) for way in every}
    for done, part in enumerate(stages):
        racing = [way for way in left if len(way) > 1 and len(_rivals(way, left)) > LEFT]
        one_s = image_s * (part.stop - part.start) * len(racing)
        looked = min(len(PROBES), int((until_s - ledger.spent_s) / one_s)) if racing else 0
        if looked < 1:
            break
        for way in racing:
            own = (meter.right(each, part) for each in probes(way)[-looked:])
            right[way] = np.concatenate([right[way], *own])
        left = _best(left, right, share=0.5)
        advance(done + 1, len(stages))
    return _best(left, right, share=0.0)


def probes(way: Way) -> tuple[Candidate, ...]:
    """Return the candidates of a way that stand for it, the one of the larger share last."""
    return tuple(dict.fromkeys(way[round(place * (len(way) - 1))] for place in PROBES))


def _best(ways: Sequence[Way], right: Mapping[Way, Array], share: float) -> list[Way]:
    """Return that share of each class, `LEFT` at least, and all ways that have not raced; the best come first."""

    def lost(way: Way) -> float:
        return 1.0 - float(right[way].mean()) if len(right[way]) else 0.0

    kept = []
    for way in ways:
        order = sorted(_rivals(way, ways), key=lost)
        if not len(right[way]) or order.index(way) < max(LEFT, ceil(share * len(order))):
            kept.append(way)
    return sorted(kept, key=lost)


def _rivals(way: Way, ways: Sequence[Way]) -> list[Way]:
    return [each for each in ways if len(each) > 1 and _class(each) == _class(way)]


def _class(way: Way) -> Hashable:
    return way[0].weights, way[0].reduce


def timing_order(left: Sequence[Way]) -> list[Candidate]:
    """Order candidates: for each share in turn every way, those of the race first, then what is far from them."""
    longest = max(map(len, left))
    order = list(dict.fromkeys(round(place * (longest - 1)) for place in PROBES))
    while len(order) < longest:
        others = [place for place in range(longest) if place not in order]
        order.append(max(others, key=lambda place: min(abs(place - each) for each in order)))
    return [way[place] for place in order for way in left if place < len(way)]
