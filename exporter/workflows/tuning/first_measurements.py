"""What a search measures first, of the unpruned model: what each measurement takes, and which targets are fast."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from exporter.errors import RecipeError
from exporter.targets import ONNXRUNTIME, Target
from exporter.vocabulary import Precision
from exporter.workflows.progress import Stages
from exporter.workflows.tuning.accuracy import FIRST, AccuracyMeter, parts
from exporter.workflows.tuning.axes import UNPRUNED, Candidate
from exporter.workflows.tuning.bench import Timed
from exporter.workflows.tuning.budget import Budget
from exporter.workflows.tuning.settings import TuneSettings

__all__ = ["LEAST_S", "FirstMeasurements"]

# A target on which the unpruned model has less than this share of the best speed is timed once.
WORTH = 0.75
# No measurement takes less.
LEAST_S = 1e-6


@dataclass(frozen=True, eq=False)
class FirstMeasurements:
    """The first measurements of a search; each is made when it is first asked for."""

    meter: AccuracyMeter
    final_images: int
    settings: TuneSettings
    targets: Sequence[Target]
    stages: Stages

    @cached_property
    def image_s(self) -> float:
        """The seconds that the unpruned model takes for an image in PyTorch; the first stage warms up."""
        ledger, stages = self.meter.bench.ledger, list(parts(len(self.meter.images.files)))[:2]
        with self.stages.stage("unpruned model"):
            for part in stages:
                before_s = ledger.spent_s
                self.meter.right(UNPRUNED, part)
        return max(ledger.spent_s - before_s, LEAST_S) / (stages[-1].stop - stages[-1].start)

    @cached_property
    def baselines(self) -> Mapping[Candidate, Timed]:
        """The unpruned model on every target, in one run."""
        targets = tuple(dict.fromkeys((*self.targets, ONNXRUNTIME)))
        with self.stages.stage(f"speed of the unpruned model on {len(targets)} targets"):
            return self.meter.bench.speeds((UNPRUNED,), targets)

    @cached_property
    def worth(self) -> tuple[Target, ...]:
        """The targets that may be the fastest, the fastest for the unpruned model first."""
        rates = {each: self.baselines[UNPRUNED.on(each.name)].images_per_s for each in self.targets}
        fast = (each for each, rate in rates.items() if rate >= WORTH * max(rates.values()))
        return tuple(sorted(fast, key=lambda each: -rates[each]))

    @cached_property
    def budget(self) -> Budget:
        """The time budget, estimated from the first measurements."""
        image_s, before_s = self.image_s, self.meter.bench.ledger.spent_s
        models = len(self.baselines)
        spent_s = self.meter.bench.ledger.spent_s
        return Budget(
            total_s=60 * self.settings.minutes,
            spent_s=spent_s,
            image_s=image_s,
            model_s=max(spent_s - before_s, LEAST_S) / models,
            targets=len({*self.worth, ONNXRUNTIME}),
            final_images=self.final_images,
            wanted=self.settings.finalists,
            low_precision=any(each.precision != Precision.FP32 for each in self.worth),
        )

    def check_limits(self) -> None:
        """Check the limits against the unpruned model on the images of the first stage.

        Raises:
            RecipeError: The loss is beyond its accuracy, or the time is too short for one candidate.
        """
        settings, images = self.settings, min(FIRST, len(self.meter.images.files))
        self.budget.check(images)
        top1 = 100 * float(self.meter.so_far(UNPRUNED, images).mean())
        if settings.metric == "top1" and settings.max_drop is not None and settings.max_drop >= top1:
            raise RecipeError("max_drop", f"{settings.max_drop:g}", f"less than the accuracy, {top1:.3g} %")
