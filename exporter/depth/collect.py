"""Collect samples for the predictor: the accuracies of models that lose more and more units (MAP, Alg. 1 and 2).

From the trained model, attention layers go step by step; from the trained model again, activations; once more,
both in turns. A step takes over weights and importance of the step before, removes the least important units of a
type, and trains. What goes first is said by a ranking: the same training with all units there. Only its scores are
used, for the first sample is the trained model as it is.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import cycle
from pathlib import Path
from typing import NamedTuple, TypeAlias

import msgspec

from exporter.core.base.canonical_json import read_json, save_json
from exporter.core.base.errors import ArtefactError, reason_of
from exporter.core.base.vocabulary import UnitType
from exporter.core.vit.protocol import PrunableViT
from exporter.depth.choose import Bookmark, RankedViT, Stage, Train, spare
from exporter.depth.gates import Importance
from exporter.depth.plan import ChoiceSettings, DepthPlan
from exporter.depth.predictor import Sample


class Tally(NamedTuple):
    """Correctly classified images, out of `images`."""

    hits: int
    images: int


@dataclass(frozen=True)
class Measured(Sample):
    """A sample as a predictor is fitted to it, and the plan of its model."""

    plan: DepthPlan = field(default_factory=DepthPlan)

    @classmethod
    def of(cls, plan: DepthPlan, depth: int, tally: Tally) -> "Measured":
        """Return the sample of a model of `depth` blocks."""
        shares = len(plan.attention) / depth, len(plan.activation) / depth
        return cls(*shares, 100 * tally.hits / tally.images, tally.images, plan)


def read_samples(path: Path) -> tuple[Measured, ...]:
    """Read samples: a JSON list of {"attention", "activation": shares removed, "accuracy": percent}."""
    expected = (
        'a JSON list of {"attention": share, "activation": share, "accuracy": percent}'
    )
    try:
        return msgspec.convert(read_json(path), tuple[Measured, ...])
    except (OSError, ValueError, RecursionError) as error:
        raise ArtefactError(path, reason_of(error), expected) from None


@dataclass(frozen=True)
class _Collection:
    """What was collected so far: the samples, and the importance of all units before the first step."""

    samples: tuple[Measured, ...] = ()
    ranking: Importance | None = None


# Measures a ViT.
Evaluate: TypeAlias = Callable[[PrunableViT], Tally]


@dataclass(frozen=True)
class Step:
    """A step of a walk: its place there, counted from 1, and how many units of which type go."""

    place: int
    unit: UnitType
    count: int


def collect(
    vit: PrunableViT,
    settings: ChoiceSettings,
    train: Train,
    evaluate: Evaluate,
    *,
    bookmark: Bookmark,
    out: Path,
) -> tuple[Measured, ...]:
    """Measure a ViT and smaller ones; each sample is written when it is measured.

    A collection that was killed continues after its last whole step and ends with the same samples. Steps at the
    same place of their walks are trained in the same way; a model that was measured before is not measured again.

    Args:
        vit: Any adapted ViT with all its units; it does not change.
        settings: How far the steps go.
        train: Trains a stage: the ranking, which has index 0, or a step, whose index is its place.
        evaluate: Measures the accuracy.
        bookmark: Takes the state after each step, and the samples.
        out: Takes the samples, a JSON list.
    """
    available = {unit: spare(vit, unit, settings, 1) for unit in UnitType}
    steps = list(steps_of(available, settings.units, settings.step))
    unpruned = RankedViT.whole(vit, settings)
    stages, ranked, records = bookmark.read(vit) or (0, unpruned, {})
    collection = msgspec.convert(records, _Collection)

    def measured() -> _Collection:
        if any(ranked.plan == sample.plan for sample in collection.samples):
            return collection
        sample = Measured.of(ranked.plan, ranked.vit.spec.depth, evaluate(ranked.vit))
        extended = replace(collection, samples=(*collection.samples, sample))
        bookmark.write(stages, ranked, vars(extended))
        return extended

    collection = measured()
    save_json(collection.samples, out)
    ranking = collection.ranking
    if ranking is None:
        ranking = ranked.trained(train, Stage("ranking", 0)).importance
        stages, ranked = 1, replace(unpruned, importance=ranking)
        collection = replace(collection, ranking=ranking)
        bookmark.write(stages, ranked, vars(collection))
    start = replace(unpruned, importance=ranking)
    for number, step in enumerate(steps[stages - 1 :], start=stages):
        stage = Stage(f"step {number} of {len(steps)}: {step.unit}", step.place)
        before = start if step.place == 1 else ranked
        ranked = before.without(step.unit, step.count, settings).trained(train, stage)
        stages = number + 1
        bookmark.write(stages, ranked, vars(collection))
        collection = measured()
        save_json(collection.samples, out)
    return collection.samples


def steps_of(
    available: Mapping[UnitType, int], units: int, step: int
) -> Iterator[Step]:
    """Yield the steps of the three walks: attention alone, activations alone, both in turns, an activation first.

    A walk ends where a type does, or at `units`; its last step may have fewer units than `step`.
    """
    # The authors' samples of both types lose an activation first.
    both = (UnitType.ACTIVATION, UnitType.ATTENTION)
    for order in ((UnitType.ATTENTION,), (UnitType.ACTIVATION,), both):
        left = units
        unit_left = dict(available)
        for place, unit in enumerate(cycle(order), start=1):
            count = min(step, left, unit_left[unit])
            if not count:
                break
            left -= count
            unit_left[unit] -= count
            yield Step(place, unit, count)
