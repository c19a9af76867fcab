"""The stages of a search, one after another; each reads what the one before it left."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf

import numpy as np

from exporter.data.images import ImageFolder
from exporter.targets import ONNXRUNTIME, TARGETS, Target
from exporter.vocabulary import Precision
from exporter.workflows.progress import Stages
from exporter.workflows.tuning.accuracy import (
    AccuracyMeter,
    Answers,
    narrowed,
    refined,
)
from exporter.workflows.tuning.axes import UNPRUNED, Candidate, Way, ways
from exporter.workflows.tuning.bench import Bench, Timed
from exporter.workflows.tuning.budget import Budget
from exporter.workflows.tuning.choice import Judged, Point, judged, qualifies
from exporter.workflows.tuning.costs import Costs, Estimates
from exporter.workflows.tuning.first_measurements import LEAST_S, FirstMeasurements
from exporter.workflows.tuning.halving import evenly, front, loss_of, margin_of
from exporter.workflows.tuning.inputs import within_reach
from exporter.workflows.tuning.race import probes, raced, timing_order
from exporter.workflows.tuning.settings import TuneSettings

__all__ = ["Study"]

Speeds = Mapping[Candidate, Timed]

# The share of the time for accuracy in which the race of ways ends, and then of what is left the timing of ways.
RACE_SHARE = 0.4
# An estimated time may be wrong by this share.
SLACK = 0.1


@dataclass(frozen=True, eq=False)
class Measured:
    """What the stages of a search leave: answers of those that are left, timed candidates, how many were tried."""

    answers: Answers
    points: tuple[Point, ...]
    tried: int


@dataclass(frozen=True, eq=False)
class Study:
    """A search: what measures, the two halves of the images, what to find, and the targets that run here."""

    bench: Bench
    search: ImageFolder
    final: ImageFolder
    settings: TuneSettings
    targets: Sequence[Target]
    stages: Stages

    @cached_property
    def meter(self) -> AccuracyMeter:
        """Measures accuracy on the search half of the images."""
        return AccuracyMeter(self.bench, self.search, self.settings.metric)

    @cached_property
    def first_measurements(self) -> FirstMeasurements:
        """What is measured first."""
        return FirstMeasurements(self.meter, len(self.final.files), self.settings, self.targets, self.stages)

    @property
    def limit(self) -> float | None:
        """The largest loss, as a share."""
        return None if self.settings.max_drop is None else self.settings.max_drop / 100

    def measured(self, every: Sequence[Candidate]) -> Measured:
        """Run all stages but the judgement.

        Raises:
            RecipeError: No candidate has a schedule, the loss is beyond the model's accuracy, or there is no time.
        """
        self.first_measurements.check_limits()
        left = self.raced(within_reach(self.bench, every, self.stages))
        estimates = self.estimates(left)
        answers = self.accuracy(self.within(left, estimates), estimates)
        tried = len(self.meter.seen - {UNPRUNED})
        points = self.points(answers, self.speeds(answers, estimates), estimates.budget)
        return Measured(answers, points, tried)

    def _until_s(self, share: float, budget: Budget) -> float:
        """Return how much may be spent until this share of the time that is left for accuracy is over."""
        spent_s = self.bench.ledger.spent_s
        return spent_s + share * (budget.accuracy_until_s() - spent_s)

    def raced(self, every: Sequence[Candidate]) -> list[Way]:
        """Return the ways that deserve all shares."""
        first = self.first_measurements
        until_s, image_s = self._until_s(RACE_SHARE, first.budget), first.image_s
        with self.stages.stage("ways to prune") as advance:
            return raced(self.meter, ways(every), until_s=until_s, image_s=image_s, advance=advance)

    def estimates(self, left: Sequence[Way]) -> Estimates:
        """Time one candidate of each way, of as many as there is time for, and learn what that takes."""
        bench, target, budget = self.bench, self.first_measurements.worth[0], self.first_measurements.budget
        time_s = self._until_s(RACE_SHARE, budget) - bench.ledger.spent_s
        some = [probes(way)[-1] for way in left[: max(0, int(time_s / budget.model_s))]]
        before_s = bench.ledger.spent_s
        with self.stages.stage(f"speed of {len(some)} ways to prune"):
            speeds = bench.speeds((UNPRUNED, *some), (target,))
        if some:
            # The first model of all was slower for warming up, models for several targets share an export.
            again_s = max(bench.ledger.spent_s - before_s, LEAST_S) / len(some)
            budget = replace(budget, model_s=min(budget.model_s, again_s))
        at = {each.on(""): (bench.macs(each), speed.median_ms) for each, speed in speeds.items()}
        costs = Costs(at[UNPRUNED], {each.way: at[each] for each in some})
        return Estimates(
            lambda each: inf if bench.schedule(each) is None else costs.ms(each, bench.macs(each)), budget
        )

    def within(self, left: Sequence[Way], estimates: Estimates) -> list[Candidate]:
        """Return the candidates of the ways in turns; under a latency, those that may be within it."""
        order, most_ms, cost = timing_order(left), self.settings.max_ms, estimates.cost
        if most_ms is None:
            return order
        found = [each for each in order if cost(each) <= (1 + SLACK) * most_ms]
        return found or sorted(order, key=cost)[: self.settings.finalists]

    def accuracy(self, some: Sequence[Candidate], estimates: Estimates) -> Answers:
        """Return which images each candidate has right that is left, with finer shares where they may matter."""
        with self.stages.stage("accuracy") as advance:
            answers = narrowed(self.meter, some, estimates, max_drop=self.limit, advance=advance)
        with self.stages.stage("finer shares") as advance:
            return refined(self.meter, answers, estimates, max_drop=self.limit, advance=advance)

    def speeds(self, answers: Answers, estimates: Estimates) -> Speeds:
        """Time finalists, front and unpruned model in one run, on the targets that may be the fastest."""
        count, costs = estimates.budget.finalists, {each: estimates.cost(each) for each in answers.hits}
        along = evenly(front(answers.hits, answers.loss, costs), answers.loss, costs, count)
        some = tuple(dict.fromkeys((*list(answers.hits)[:count], *along)))
        targets = tuple(dict.fromkeys((*self.first_measurements.worth, ONNXRUNTIME)))
        with self.stages.stage(f"speed of {len(some)} candidates on {len(targets)} targets"):
            return self.bench.speeds((UNPRUNED, *some), targets)

    def points(self, answers: Answers, speeds: Speeds, budget: Budget) -> tuple[Point, ...]:
        """Return the timed candidates with their losses, fastest first.

        In fp32 the loss is that of the PyTorch model. In lower precision it is measured on the runtime, but not of
        those that are slower than one that qualifies, and while there is time.
        """
        order = sorted(speeds, key=lambda each: -speeds[each].images_per_s)
        found: list[Point] = []
        with self.stages.stage("accuracy of low precision") as advance:
            for done, each in enumerate(order):
                advance(done + 1, len(order))
                target, drop = TARGETS[each.target], self.settings.max_drop
                if target not in self.targets or each == UNPRUNED.on(ONNXRUNTIME.name):
                    continue
                beaten = drop is not None and any(qualifies(point, drop) for point in found)
                if target.precision == Precision.FP32:
                    hits = {UNPRUNED: answers.dense, **answers.hits}[each.on("")]
                elif beaten or self.bench.ledger.spent_s > budget.points_until_s:
                    continue
                else:
                    hits = self.meter.so_far(each, len(answers.dense))
                found.append(self._point(each, hits, answers.dense, speeds))
        return tuple(found)

    def _point(self, each: Candidate, hits: np.ndarray, dense: np.ndarray, speeds: Speeds) -> Point:
        lost, gained = loss_of(dense, hits)
        speed, base = speeds[each], speeds[UNPRUNED.on(ONNXRUNTIME.name)]
        return Point(
            candidate=each,
            gmacs=self.bench.macs(each) / 1e9,
            loss_points=100 * (lost - gained) / len(hits),
            margin_points=100 * margin_of(dense, hits),
            images=len(hits),
            images_per_s=speed.images_per_s,
            median_ms=speed.median_ms,
            gain=speed.images_per_s / base.images_per_s,
            file_bytes=speed.file_bytes,
        )

    def judged(self, choice: Point) -> Judged:
        """Judge the choice on the final half, on its runtime."""
        final = AccuracyMeter(self.bench, self.final, self.settings.metric)
        with self.stages.stage(f"{len(self.final.files)} images that no choice has read"):
            dense, own = final.right(UNPRUNED), final.right(choice.candidate)
        return judged(dense, own, self.settings.max_drop)
