"""The stages of a search, one after another; each reads what the one before it left."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from exporter.data.images import ImageFolder
from exporter.errors import RecipeError
from exporter.targets import ONNXRUNTIME, TARGETS, Target
from exporter.vocabulary import Precision
from exporter.workflows.progress import Stages
from exporter.workflows.tuning.accuracy import FIRST, Answers, Examiner, narrowed, with_finer_shares
from exporter.workflows.tuning.axes import UNPRUNED, Candidate, ways
from exporter.workflows.tuning.bench import Bench, Timed
from exporter.workflows.tuning.choice import Judged, Point, judged, qualifies
from exporter.workflows.tuning.halving import front, loss_of, margin_of
from exporter.workflows.tuning.settings import TuneSettings

__all__ = ["Study"]

Speeds = Mapping[Candidate, Timed]

# The shares of the time after which no candidate is added, and no stage of accuracy begins.
FIRST_SHARE, ACCURACY_SHARE = 0.4, 0.7
# Steps of the axis of shares beyond the least one that is fast enough.
STEPS_BEYOND = 2
# A target whose speed is below this share of the fastest one's is not timed with all finalists.
WORTH = 0.5


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
    def examiner(self) -> Examiner:
        """What says which images of the search half a candidate has right."""
        return Examiner(self.bench, self.search, self.settings.metric)

    @property
    def limit(self) -> float | None:
        """The largest loss, as a share."""
        return None if self.settings.max_drop is None else self.settings.max_drop / 100

    def check_limits(self) -> float:
        """Check the limits against the unpruned model on the images of the first stage; return the seconds it took.

        Raises:
            RecipeError: The loss is beyond its accuracy, or the time is too short for one candidate.
        """
        settings, ledger = self.settings, self.bench.ledger
        images = min(FIRST, len(self.search.files))
        with self.stages.stage("unpruned model"):
            before = ledger.spent_s
            top1 = 100 * float(self.examiner.so_far(UNPRUNED, images).mean())
        seconds = ledger.spent_s - before
        if seconds > 60 * settings.minutes:
            expected = f"at least {seconds / 60:.2g}, which {images} images take"
            raise RecipeError("minutes", f"{settings.minutes:g}", expected)
        if settings.metric == "top1" and settings.max_drop is not None and settings.max_drop >= top1:
            raise RecipeError("max_drop", f"{settings.max_drop:g}", f"less than the accuracy, {top1:.3g} %")
        return seconds

    def within_reach(self, every: Sequence[Candidate], seconds: float) -> tuple[Candidate, ...]:
        """Return the candidates that have a schedule and for which there is time: for each share in turn every way.

        Args:
            every: All candidates.
            seconds: What the first stage takes for one candidate.

        Raises:
            RecipeError: No candidate has a schedule.
        """
        affordable = max(1, int(FIRST_SHARE * 60 * self.settings.minutes / max(seconds, 1e-3)))
        found: list[Candidate] = []
        with self.stages.stage("schedules") as advance:
            for done, each in enumerate(in_turns(every)):
                if len(found) == affordable:
                    break
                if self.bench.schedule(each) is not None:
                    found.append(each)
                advance(done + 1, len(every))
        if not found:
            expected = "a smaller amount, or --images where scores or rates need a calibration"
            raise RecipeError("tune", "no candidate that can be pruned so", expected)
        return tuple(found) if self.settings.max_ms is None else self._fast_enough(found)

    def _fast_enough(self, found: Sequence[Candidate]) -> tuple[Candidate, ...]:
        """Leave the shares around the least one with which a model is within the latency."""
        first = next((group for group in ways(tuple(found)) if group[0].mac_reduction), ())
        limit_ms = self.settings.max_ms
        if not first or limit_ms is None:
            return tuple(found)
        with self.stages.stage("latency by share"):
            speeds = self.bench.speeds(first, self.targets)
        fast = {each.mac_reduction for each, speed in speeds.items() if speed.median_ms <= limit_ms}
        shares = sorted({each.mac_reduction for each in found if each.mac_reduction})
        least = shares.index(min(share for share in fast if share)) if fast else len(shares) - 1
        kept = (None, *shares[max(0, least - 1) : least + STEPS_BEYOND + 1])
        return tuple(each for each in found if each.mac_reduction in kept)

    def accuracy(self, some: Sequence[Candidate]) -> Answers:
        """Return which images each candidate has right that is left, with finer shares around the best of them."""
        budget_s = ACCURACY_SHARE * 60 * self.settings.minutes
        with self.stages.stage("accuracy") as advance:
            answers = narrowed(self.examiner, some, max_drop=self.limit, budget_s=budget_s, advance=advance)
        if self.bench.ledger.spent_s > budget_s:
            return answers
        finalists = self._finalists(answers)
        with self.stages.stage("finer shares") as advance:
            return with_finer_shares(self.examiner, answers, finalists, self.limit, advance)

    def _finalists(self, answers: Answers) -> list[Candidate]:
        return list(answers.hits)[: self.settings.finalists]

    def baselines(self, answers: Answers) -> Speeds:
        """Time the unpruned model and the most promising candidate on every target, in one run."""
        targets = tuple(dict.fromkeys((*self.targets, ONNXRUNTIME)))
        with self.stages.stage(f"speed on {len(targets)} targets"):
            return self.bench.speeds((UNPRUNED, *self._finalists(answers)[:1]), targets)

    def speeds(self, answers: Answers, baselines: Speeds) -> Speeds:
        """Time finalists, front and unpruned model in one run, on the targets that may be the fastest."""
        best = max(speed.images_per_s for speed in baselines.values())
        worth = {each.target for each, speed in baselines.items() if speed.images_per_s >= WORTH * best}
        targets = [each for each in self.targets if each.name in worth]
        some = tuple(dict.fromkeys((*self._finalists(answers), *self._along_the_front(answers))))
        with self.stages.stage(f"speed of {len(some)} candidates on {len(targets)} targets"):
            return self.bench.speeds((UNPRUNED, *some), tuple(dict.fromkeys((*targets, ONNXRUNTIME))))

    def _along_the_front(self, answers: Answers) -> list[Candidate]:
        """Return as many candidates again, evenly along the front of multiply-adds and loss."""
        macs = {each: self.bench.macs(each) for each in answers.hits}
        found = front(answers.hits, lambda each: -float(answers.hits[each].mean()), macs)
        places = np.linspace(0, len(found) - 1, min(self.settings.finalists, len(found)))
        return [found[round(place)] for place in places]

    def points(self, answers: Answers, speeds: Speeds) -> tuple[Point, ...]:
        """Return the timed candidates with their losses, fastest first.

        In fp32 the loss is that of the PyTorch model. In lower precision it is measured on the runtime, but not of
        those that are slower than one that qualifies.
        """
        order = sorted(speeds, key=lambda each: -speeds[each].images_per_s)
        found: list[Point] = []
        with self.stages.stage("accuracy of low precision") as advance:
            for done, each in enumerate(order):
                advance(done + 1, len(order))
                target, drop = TARGETS[each.target], self.settings.max_drop
                if target not in self.targets or each == UNPRUNED.on(ONNXRUNTIME.name):
                    continue
                if target.precision == Precision.FP32:
                    hits = {UNPRUNED: answers.dense, **answers.hits}[each.on("")]
                elif drop is not None and any(qualifies(point, drop) for point in found):
                    continue
                else:
                    hits = self.examiner.so_far(each, len(answers.dense))
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
        final = Examiner(self.bench, self.final, self.settings.metric)
        with self.stages.stage(f"{len(self.final.files)} images that no choice has read"):
            dense, own = final.right(UNPRUNED), final.right(choice.candidate)
        return judged(dense, own, self.settings.max_drop)


def in_turns(every: Sequence[Candidate]) -> list[Candidate]:
    """Order candidates: those without a share, then for each share in turn every way, the middle shares first."""
    shares = sorted({each.mac_reduction for each in every if each.mac_reduction})
    middle = (len(shares) - 1) / 2
    place = {share: abs(index - middle) for index, share in enumerate(shares)}
    return sorted(
        every, key=lambda each: (place.get(each.mac_reduction or 0, -1), -(each.mac_reduction or 0))
    )
