"""A search, step by step: screen the ways, time what is left, judge the choice."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from pathlib import Path

import numpy as np

from exporter.core.base.errors import RecipeError, ScheduleError
from exporter.core.base.progress import Stages
from exporter.core.base.records import Pair
from exporter.core.base.targets import ONNXRUNTIME, TARGETS, Target
from exporter.core.base.tensor_names import Array
from exporter.core.base.vocabulary import InputKind
from exporter.core.schedule.plan import Cost, schedule_of
from exporter.core.schedule.policy import Amount, Need, Policy
from exporter.core.schedule.rates import LEAST_RHO
from exporter.data.images import ImageFolder
from exporter.data.source import images_at
from exporter.engines.choice import targets_here
from exporter.jobs.network import Network
from exporter.jobs.recipe import Lowering
from exporter.jobs.variant import Variant
from exporter.measure.accuracy import Predictions
from exporter.measure.batch_sweep import filled_batch
from exporter.measure.benchmark import front_of, ratio_of
from exporter.report import words
from exporter.tuning.book import Book
from exporter.tuning.choice import (
    LEFT,
    ROUNDING,
    InOneRun,
    Judged,
    Point,
    Timed,
    TuneResult,
    TuneSettings,
    around,
    chosen,
    judged,
    loss_of_choice,
    most_accurate,
    point_of,
    qualifies,
)
from exporter.tuning.ways import OWN, UNPRUNED, Candidate, Way

# At about this share of saved multiply-adds ways are screened.
AT_SHARE = 0.4
# Steps of the bisection over the shares of a way.
STEPS = 4
# Candidates of a way that are timed.
TIMED = 3
# A target on which the unpruned model has less than this share of the best speed is timed once.
WORTH = 0.75
# Images on which a-STAR's multiply-adds are counted, and the rho at which they are.
COUNTED = 32
RHOS = (LEAST_RHO, *(step / 12 for step in range(1, 13)))
# The unpruned model that all others are compared with.
BASE = UNPRUNED.on(ONNXRUNTIME.name)


@dataclass(frozen=True, eq=False)
class Search:
    """A search of candidates, each a variant of a network.

    Args:
        opened: What the recipes of the networks say, by the name of their weights: the model's own under `OWN`.
        ways: The ways to prune.
        settings: What to find. By the metric "top1", images have their labels, by "agreement" the unpruned model's
            classes.
        book: What is measured.
        parts: The parts of the images to measure on, by name.
        place: A folder for calibrations.
        scratch: A folder for lowered models.
        seen: The candidates whose answers were asked for, whatever their target.
        skipped: Why images to measure on were left out, by name.
        calibration_skipped: The same of images to calibrate on.
    """

    opened: dict[str, Variant]
    ways: Sequence[Way]
    settings: TuneSettings
    book: Book
    parts: Mapping[str, ImageFolder]
    place: Path
    scratch: Path
    seen: set[Candidate] = field(default_factory=set)
    skipped: dict[str, str] = field(default_factory=dict)
    calibration_skipped: dict[str, str] = field(default_factory=dict)
    _variants: dict[Candidate, Variant] = field(default_factory=dict)

    def run(self, on_points: Callable[[Sequence[Point]], None]) -> TuneResult:
        """Run all steps but the compilation.

        `on_points` is called with all that is measured whenever that is more.
        """
        settings = self.settings
        self._check_goal()
        names = [target.name for target in self.targets]
        first = self._first()
        early = self.points(first, names[:1], (), on_points)
        rates = self.rates
        names.sort(key=rates.__getitem__, reverse=True)
        worth = [name for name in names if rates[name] >= WORTH * rates[names[0]]]
        start_s = self.book.spent_s
        early = self.points([UNPRUNED, *first], worth, early, on_points)
        candidate_s = (self.book.spent_s - start_s) / len([UNPRUNED, *first])
        self._say_left(TIMED * min(len(self.ways), LEFT), candidate_s)
        ways = self.screened()
        candidates = list[Candidate]()
        with self.stages.stage(f"how much to prune, {len(ways)} ways") as advance:
            for done, way in enumerate(ways, 1):
                candidates += self.listed(way, worth[0], TIMED)
                advance(done, len(ways))
        points = self.points(candidates, worth, early, on_points)
        front = front_of(point.trade_point for point in points)
        choice = chosen(points, settings)
        return TuneResult(
            model=self.network.full.spec.name,
            settings=settings,
            candidates=len(self.seen - {UNPRUNED}),
            images=len(self.answers(UNPRUNED, "screen", "rest").labels),
            unpruned=rates,
            tried=points,
            front=tuple(point.label for point in front),
            choice=choice,
            judged=None if choice is None else self.judged(choice),
            skipped=dict(sorted(self.skipped.items())),
            calibration_skipped=dict(sorted(self.calibration_skipped.items())),
        )

    @property
    def network(self) -> Network:
        """The model itself."""
        return self.opened[OWN].network

    @property
    def stages(self) -> Stages:
        """What shows progress."""
        return self.network.stages

    @property
    def targets(self) -> Sequence[Target]:
        """The targets to search."""
        return targets_here(self.settings.runtime, self.settings.target)

    def _check_goal(self) -> None:
        """Raise RecipeError where the unpruned model has no more accuracy than may be lost."""
        drop = self.settings.max_drop
        with self.stages.stage("the unpruned model"):
            top1 = 100 * self.answers(UNPRUNED, "screen").accuracy.top1
        if self.settings.metric == "top1" and drop is not None and drop >= top1:
            raise RecipeError(
                "max_drop", f"{drop:g}", f"less than the accuracy, {top1:.3g} %"
            )

    @cached_property
    def rates(self) -> dict[str, float]:
        """Images per second of the unpruned model on every target."""
        targets = dict.fromkeys((*self.targets, ONNXRUNTIME))
        with self.stages.stage("speed of the unpruned model on each target"):
            speeds = self.speeds([UNPRUNED.on(target.name) for target in targets])
        base, rates = speeds[BASE].throughput, {}
        for candidate, timed in speeds.items():
            gain = ratio_of(base, timed.throughput)
            rates[candidate.target] = self.base_rate * gain.median
        return rates

    @cached_property
    def base_rate(self) -> float:
        """Images per second of the unpruned model in fp32 on ONNX Runtime, on which all speeds are based.

        A machine's speed drifts from run to run; ratios within a run do not.
        """
        return self.speeds([BASE])[BASE].throughput.images_per_s

    def _first(self) -> list[Candidate]:
        """Return a candidate that needs no calibration, for a result in the first minute; none if all need one."""
        for way in self.ways:
            if not way[0].calibrated and (reached := self.in_reach(way)):
                return [min(reached, key=_off)]
        return []

    def _say_left(self, candidates: int, candidate_s: float) -> None:
        """Say what is left, and how long it takes by what the first candidates took."""
        whole = timedelta(seconds=round(candidates * candidate_s))
        calibrates = any(way[0].calibrated for way in self.ways)
        more = ""
        if calibrates and not self.network.has_calibration:
            more = "a calibration, "
        self.stages.say(
            f"left: {more}{len(self.ways)} ways to screen, then about {candidates} candidates to time, {whole}; "
            "Ctrl-C keeps the best so far, and the same command goes on"
        )

    def screened(self) -> list[Way]:
        """Return the ways that lose least on a few images, at about one share; calibrate if one needs it."""
        for name in dict.fromkeys(
            way[0].weights for way in self.ways if way[0].calibrated
        ):
            self._calibrate(name)
        images = len(self.parts["screen"].files)
        right = dict[Way, int]()
        with self.stages.stage(f"ways to prune, by {images} images") as advance:
            for done, way in enumerate(self.ways, 1):
                reached = self.in_reach(way)
                if reached:
                    predictions = self.answers(min(reached, key=_off), "screen")
                    right[reached] = predictions.accuracy.top1_hits
                advance(done, len(self.ways))
        if not right:
            expected = (
                "a smaller amount, or --images where scores or rates need a calibration"
            )
            raise RecipeError("tune", "no candidate that can be pruned so", expected)
        return most_accurate(list(right), right.__getitem__)

    def _calibrate(self, name: str) -> None:
        """Calibrate a network for every candidate.

        Without images to calibrate on, and where it has a calibration or is pruned as it was trained, it is as it
        was.
        """
        opened = self.opened[name]
        network = opened.network
        is_known = opened.given is not None or network.has_calibration
        if is_known or network.recipe.images.images is None:
            return
        calibration, skipped = self.book.calibration(
            network, self.calibration_file(name)
        )
        self.opened[name] = replace(opened, measured=calibration)
        self.calibration_skipped.update(skipped)

    def calibration_file(self, name: str) -> Path:
        """Return the file of a network's calibration, a given one or that of this search."""
        file = f"{name}.calibration.safetensors" if name else "calibration.safetensors"
        return self.opened[name].network.recipe.prune.calibration or self.place / file

    def listed(self, way: Way, fastest: str, count: int) -> list[Candidate]:
        """Return the shares of a way that are worth timing, by the screened loss or the measured time of a few."""
        settings = self.settings

        def loses(candidate: Candidate) -> bool:
            loss = loss_of_choice(self.paired(candidate, "screen"))
            return (loss.loss_points or 0.0) > (settings.max_drop or 0.0) + ROUNDING

        def is_fast(candidate: Candidate) -> bool:
            speeds = self.speeds([BASE, candidate.on(fastest)])
            base, pruned = (timed.throughput for timed in speeds.values())
            return settings.reached(pruned.median_ms, ratio_of(base, pruned))

        if len(way) == 1:
            return [*way]
        if settings.max_drop is None:
            return around(way, is_fast, count, milder=False)
        return around(way, loses, count, milder=True)

    def points(
        self,
        candidates: Sequence[Candidate],
        targets: Sequence[str],
        known: Sequence[Point],
        on_points: Callable[[Sequence[Point]], None],
    ) -> tuple[Point, ...]:
        """Time candidates, each in a run with the unpruned model on its targets, and measure their losses.

        Return them with the points that are known before, the fastest first.
        """
        points = [*known]
        measured = {point.candidate for point in known}
        left = [
            candidate
            for candidate in candidates
            if any(candidate.on(target) not in measured for target in targets)
        ]
        stage = f"speed and loss of {len(left)} candidates on each target"
        with self.stages.stage(stage) as advance:
            for done, candidate in enumerate(left, 1):
                best = chosen(points, self.settings)
                others = [
                    point for point in points if point.candidate.on("") != candidate
                ]
                points = [*others, *self._measured(candidate, targets, others)]
                self._say_best(chosen(points, self.settings), best)
                on_points(points)
                advance(done, len(left))
        return tuple(sorted(points, key=lambda point: -point.images_per_s))

    def _measured(
        self, candidate: Candidate, targets: Sequence[str], known: Sequence[Point]
    ) -> list[Point]:
        """Return a candidate on targets, with its speeds and losses.

        In fp32 the loss is that of the PyTorch model. In lower precision it is measured on the runtime: on
        the first target always, on the others unless a faster point is known whose loss qualifies.
        """
        placed = [candidate.on(target) for target in targets]
        unpruned = [UNPRUNED.on(target) for target in targets]
        speeds = self.speeds([*dict.fromkeys((BASE, *unpruned, *placed))])
        limit = self.settings.max_drop
        points = list[Point]()
        for on_target, plain in zip(placed, unpruned, strict=True):
            times = InOneRun(speeds[on_target], speeds[plain], speeds[BASE])
            is_fp32 = not TARGETS[on_target.target].reduced
            gain = ratio_of(times.base.throughput, times.candidate.throughput)
            rate = self.base_rate * gain.median
            is_beaten = limit is not None and any(
                point.images_per_s >= rate and qualifies(point, self.settings)
                for point in (*known, *points)
            )
            if is_fp32 or on_target.target == targets[0] or not is_beaten:
                judged_as = candidate if is_fp32 else on_target
                answers = self.paired(judged_as, "screen", "rest")
                macs = self.macs(candidate)
                points.append(point_of(on_target, macs, answers, times, self.base_rate))
        return points

    def _say_best(self, choice: Point | None, before: Point | None) -> None:
        """Say the best choice so far where it is a new one."""
        if choice is not None and choice != before:
            speed = words.speed_up(choice.speed_up)
            loss = f"{words.points(choice.loss_points)} points of top-1"
            self.stages.say(
                f"the best so far: {choice.candidate.label}: {speed}, {loss}"
            )

    def judged(self, choice: Point) -> Judged:
        """Judge the choice on the final half, on its runtime, against the unpruned fp32 model."""
        images = len(self.parts["final"].files)
        with self.stages.stage(f"{images} images that no choice has read"):
            return judged(
                self.paired(choice.candidate, "final"), self.settings.max_drop
            )

    def in_reach(self, way: Way) -> Way:
        """Return the candidates of a way whose amount is within reach; none where a calibration is missing."""
        first = way[0]
        is_open = first.calibrated and not first.given
        if is_open and self.opened[first.weights].calibration is None:
            return ()
        reached = []
        for candidate in way:
            with suppress(ScheduleError):
                _ = self.variant(candidate).schedule
                reached.append(candidate)
        return tuple(reached)

    def variant(self, candidate: Candidate) -> Variant:
        """Return the variant of a candidate, on its target or in PyTorch."""
        if candidate not in self._variants:
            make = self._lowered if candidate.target else self._pruned
            self._variants[candidate] = make(candidate)
        return self._variants[candidate]

    def _pruned(self, candidate: Candidate) -> Variant:
        variant = replace(self.opened[candidate.weights], lowering=None)
        policy = candidate.policy
        if policy is None:
            return variant.dense
        if candidate.given:
            return variant
        variant = replace(variant, policy=policy)
        if Need.COST in policy.needs:
            variant = replace(variant, cost=self._cost(variant, policy))
        return variant

    def _lowered(self, candidate: Candidate) -> Variant:
        variant = self.variant(candidate.on(""))
        folder = self.scratch / str(len(self._variants))
        folder.mkdir()
        kind = variant.network.input_kind
        return variant.on(Lowering(candidate.target, input_kind=kind), folder)

    def _cost(self, variant: Variant, policy: Policy) -> Cost:
        """Return the multiply-adds of a way of a-STAR, whatever the share."""
        network = variant.network
        spec = network.full.spec
        schedules = []
        for rho in RHOS:
            at_rho = replace(policy, amount=Amount(rho))
            schedules.append(schedule_of(at_rho, spec, variant.calibration))
        pixels = network.pixels(self._sample, COUNTED, InputKind.FLOAT32)
        return self.book.cost_by_rho(variant, schedules, pixels)

    @cached_property
    def _sample(self) -> ImageFolder:
        """The images to calibrate on; without, those to measure on."""
        images = self.network.recipe.images
        if images.images is not None or images.eval_images is None:
            return self.network.folder
        return images_at(images.eval_images)

    @cached_property
    def _pixels(self) -> Array:
        """Images to time on, as the lowered models take them."""
        network = self.network
        batch = network.measuring.batch
        pixels = network.pixels(self._sample, batch, network.input_kind)
        return filled_batch(pixels, batch)

    def macs(self, candidate: Candidate) -> float:
        """Return the multiply-adds of an image, under a-STAR the mean of those that are timed."""
        return self.book.useful_macs(self.variant(candidate.on("")), self._pixels)

    def answers(self, candidate: Candidate, *parts: str) -> Predictions:
        """Return the class that a candidate gives each image of some parts: on its target, or in PyTorch."""
        self.seen.add(candidate.on(""))
        variant = self.variant(candidate)
        columns = list[Array]()
        for part in parts:
            images = self.parts[part]
            if images.files:
                answers = self.book.answers(candidate.label, variant, part, images)
                self.skipped.update(answers["skipped"])
                columns.append(
                    np.array([answers["classes"], answers["labels"]], np.int64)
                )
        classes, labels = np.concatenate(columns, axis=1)
        if self.settings.metric != "top1":
            is_base = candidate == UNPRUNED
            labels = classes if is_base else self.answers(UNPRUNED, *parts).best[:, 0]
        return Predictions(classes[:, None], labels)

    def paired(self, candidate: Candidate, *parts: str) -> Pair[Predictions]:
        """Return the answers of the unpruned model and of a candidate."""
        return Pair(self.answers(UNPRUNED, *parts), self.answers(candidate, *parts))

    def speeds(self, placed: Sequence[Candidate]) -> dict[Candidate, Timed]:
        """Time candidates, each on its target, interleaved in one run."""
        variants = {candidate.label: self.variant(candidate) for candidate in placed}
        times = self.book.times(variants, self._pixels)
        return {candidate: times[candidate.label] for candidate in placed}


def _off(candidate: Candidate) -> float:
    """Return how far from the share at which ways are screened a candidate is."""
    share = None if candidate.prune is None else candidate.prune.mac_reduction
    return abs((share or AT_SHARE) - AT_SHARE)
