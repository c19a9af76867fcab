"""The stages of a search, one after another; each reads what the one before it left."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from exporter.data.images import ImageFolder
from exporter.errors import RecipeError
from exporter.records import Schedule
from exporter.targets import ONNXRUNTIME, TARGETS, Target
from exporter.vocabulary import Precision
from exporter.workflows.progress import Stages
from exporter.workflows.tuning.accuracy import FIRST, Answers, Stage, narrowed, right
from exporter.workflows.tuning.axes import UNPRUNED, Candidate, candidates, ways
from exporter.workflows.tuning.bench import DENSE, Bench, Speed
from exporter.workflows.tuning.choice import Judged, Point, judged, qualifies
from exporter.workflows.tuning.halving import loss_of, margin_of
from exporter.workflows.tuning.settings import TuneSettings

__all__ = ["Study"]

Array = np.ndarray[Any, Any]
Schedules = Mapping[Candidate, Schedule]
Speeds = Mapping[tuple[str, str], Speed]

# The share of the time that the first stage may take, and that all stages of accuracy may.
FIRST_SHARE, ACCURACY_SHARE = 0.4, 0.7
# Steps of the axis of shares beyond the least one that is fast enough.
STEPS_BEYOND = 2


@dataclass(frozen=True, eq=False)
class Study:
    """A search: what measures, the two halves of the images, what to find, and the targets that run here."""

    bench: Bench
    search: ImageFolder
    final: ImageFolder
    settings: TuneSettings
    targets: Sequence[Target]
    stages: Stages

    @property
    def timed(self) -> tuple[Target, ...]:
        """The targets, and fp32 on ONNX Runtime, which gains are over."""
        return tuple(dict.fromkeys((*self.targets, ONNXRUNTIME)))

    @property
    def limit(self) -> float | None:
        """The largest loss, as a share."""
        return None if self.settings.max_drop is None else self.settings.max_drop / 100

    def check_limits(self) -> None:
        """Check the limits against the unpruned model, on the images of the first stage.

        Raises:
            RecipeError: The loss is beyond its accuracy, or the time is too short for one candidate.
        """
        settings, files = self.settings, self.search.files[:FIRST]
        with self.stages.stage("unpruned model"):
            part = f"search 0 to {len(files)}"
            found = self.bench.predicted(DENSE, files, part, lambda: self.bench.reference(None))
            labels = self.bench.labels(files, part)
        seconds = self._first_seconds
        if seconds > 60 * settings.minutes:
            expected = f"at least {seconds / 60:.2g}, which {len(files)} images take"
            raise RecipeError("minutes", f"{settings.minutes:g}", expected)
        top1 = 100 * float((found == labels).mean())
        if settings.metric == "top1" and settings.max_drop is not None and settings.max_drop >= top1:
            raise RecipeError("max_drop", f"{settings.max_drop:g}", f"less than the accuracy, {top1:.3g} %")

    @cached_property
    def _first_seconds(self) -> float:
        part = f"search 0 to {min(FIRST, len(self.search.files))}"
        return self.bench.ledger.seconds(f"answers, {DENSE}, {part}")

    def schedules(self) -> Schedules:
        """Return the schedules of the candidates that are within reach, and for which there is time."""
        every = candidates()
        with self.stages.stage("schedules") as advance:
            found: dict[Candidate, Schedule] = {}
            for done, key in enumerate(self._in_turns(every)):
                schedule = self.bench.schedule(key)
                if schedule is not None:
                    found[key] = schedule
                advance(done + 1, len(every))
                if len(found) >= self._affordable:
                    break
        return found if self.settings.max_ms is None else self._fast_enough(found)

    @property
    def _affordable(self) -> int:
        seconds = max(self._first_seconds, 1e-3)
        return max(1, int(FIRST_SHARE * 60 * self.settings.minutes / seconds))

    @staticmethod
    def _in_turns(every: tuple[Candidate, ...]) -> list[Candidate]:
        """Order the candidates: for each share in turn every way, the middle shares first."""
        groups = list(ways(every))
        middle = (len(groups[0]) - 1) / 2
        places = sorted(range(len(groups[0])), key=lambda place: abs(place - middle))
        return [group[place] for place in places for group in groups]

    def _fast_enough(self, found: Schedules) -> Schedules:
        """Leave the shares around the least one with which a model is within the latency."""
        first = next(ways(tuple(found)))
        models = {DENSE: None, **{key.label: found[key] for key in first}}
        with self.stages.stage("latency by share"):
            speeds = self.bench.speeds(models, self.timed)
        assert self.settings.max_ms is not None
        shares = sorted({key.mac_reduction for key in found})
        fast = [
            key.mac_reduction
            for key in first
            if min(speeds[key.label, target.name].median_ms for target in self.targets)
            <= self.settings.max_ms
        ]
        least = shares.index(min(fast)) if fast else len(shares) - 1
        kept = shares[max(0, least - 1) : least + STEPS_BEYOND + 1]
        return {key: schedule for key, schedule in found.items() if key.mac_reduction in kept}

    def accuracy(self, schedules: Schedules) -> tuple[Answers, tuple[Stage, ...]]:
        """Return which images each candidate has right that is left, and what each stage left."""
        with self.stages.stage("accuracy") as advance:
            return narrowed(
                self.bench,
                schedules,
                self.search,
                metric=self.settings.metric,
                max_drop=self.limit,
                budget_s=ACCURACY_SHARE * 60 * self.settings.minutes,
                advance=advance,
            )

    def speeds(self, schedules: Schedules, answers: Answers) -> Speeds:
        """Time the finalists and the unpruned model on every target, in one run."""
        finalists = {key.label: schedules[key] for key in list(answers.hits)[: self.settings.finalists]}
        with self.stages.stage(f"speed of {len(finalists)} ways on {len(self.targets)} targets"):
            return self.bench.speeds({DENSE: None, **finalists}, self.timed)

    def points(self, schedules: Schedules, answers: Answers, speeds: Speeds) -> tuple[Point, ...]:
        """Return the timed candidates with their losses, fastest first.

        In fp32 the loss is that of the PyTorch model. In lower precision it is measured on the runtime, but not of
        those that are slower than one that qualifies.
        """
        by_label = {DENSE: UNPRUNED, **{key.label: key for key in answers.hits}}
        order = sorted(speeds, key=lambda place: -speeds[place].images_per_s)
        found: list[Point] = []
        with self.stages.stage("accuracy of low precision") as advance:
            for done, (label, name) in enumerate(order):
                advance(done + 1, len(order))
                key, schedule = by_label[label], schedules.get(by_label[label])
                if (label, name) == (DENSE, ONNXRUNTIME.name) or TARGETS[name] not in self.targets:
                    continue
                if TARGETS[name].precision == Precision.FP32:
                    hits = answers.dense if schedule is None else answers.hits[key]
                elif self._settled(found):
                    continue
                else:
                    hits = self._on_runtime(key, schedule, TARGETS[name], len(answers.dense))
                found.append(self._point(key.on(name), schedule, hits, answers, speeds))
        return tuple(found)

    def _settled(self, found: Sequence[Point]) -> bool:
        """Whether a faster candidate qualifies already."""
        drop = self.settings.max_drop
        return drop is not None and any(qualifies(point, drop) for point in found)

    def _on_runtime(self, key: Candidate, schedule: Schedule | None, target: Target, images: int) -> Array:
        """Return which of the first images of the search half a lowered model has right."""
        files, part = self.search.files[:images], f"search 0 to {images}"
        labels = self.bench.labels(files, part)
        dense = self.bench.predicted(DENSE, files, part, lambda: self.bench.reference(None))
        name = key.on(target.name).label
        own = self.bench.predicted(name, files, part, lambda: self.bench.lowered(schedule, target))
        return right(own, labels, dense, self.settings.metric)

    def _point(
        self, key: Candidate, schedule: Schedule | None, hits: Array, answers: Answers, speeds: Speeds
    ) -> Point:
        lost, gained = loss_of(answers.dense, hits)
        speed = speeds[key.on("").label, key.target]
        base = speeds[DENSE, ONNXRUNTIME.name]
        return Point(
            candidate=key,
            gmacs=self.bench.macs(schedule) / 1e9,
            loss_points=100 * (lost - gained) / len(hits),
            margin_points=100 * margin_of(answers.dense, hits),
            images=len(hits),
            images_per_s=speed.images_per_s,
            median_ms=speed.median_ms,
            gain=speed.images_per_s / base.images_per_s,
            file_bytes=speed.file_bytes,
        )

    def judged(self, choice: Point, schedule: Schedule | None) -> Judged:
        """Judge the choice on the final half, on its runtime."""
        files, part, target = self.final.files, "final", TARGETS[choice.candidate.target]
        with self.stages.stage(f"{len(files)} images that no choice has read"):
            labels = self.bench.labels(files, part)
            dense = self.bench.predicted(DENSE, files, part, lambda: self.bench.reference(None))
            name = choice.candidate.label
            own = self.bench.predicted(name, files, part, lambda: self.bench.lowered(schedule, target))
        metric = self.settings.metric
        whole, pruned = (right(each, labels, dense, metric) for each in (dense, own))
        return judged(whole, pruned, self.settings.max_drop)
