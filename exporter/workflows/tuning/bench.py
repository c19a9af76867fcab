"""The measurements of a search: what candidates predict, in PyTorch or on a runtime, and how fast they are."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import onnx

from exporter.calibration.record import Calibration
from exporter.data.batches import batches, first_images
from exporter.data.images import ImageFile, sample
from exporter.data.source import images_at
from exporter.errors import ScheduleError
from exporter.evaluation.accuracy import top_classes
from exporter.evaluation.benchmark.batch_sweep import resized
from exporter.evaluation.benchmark.timing import throughput
from exporter.evaluation.parity.reference import reference_runner
from exporter.lowering.pipeline import lower_each
from exporter.models.base import PrunableViT
from exporter.pruning.pruned_vit import PrunedViT
from exporter.records import Schedule
from exporter.runtimes.base import Runner
from exporter.runtimes.choice import on_this_cpu, runner_for
from exporter.targets import TARGETS, Target
from exporter.tensor_names import IMAGES, LOGITS
from exporter.vocabulary import InputKind
from exporter.workflows import steps
from exporter.workflows.amount import MacShare
from exporter.workflows.measuring import useful_macs
from exporter.workflows.planning import Planner, measured_macs, plan
from exporter.workflows.requests import Lowering
from exporter.workflows.resolve import Job
from exporter.workflows.tuning.axes import UNPRUNED, Candidate
from exporter.workflows.tuning.ledger import Ledger

__all__ = ["DENSE", "Bench", "Speed"]

Array = np.ndarray[Any, Any]

# The name of the unpruned model among candidates.
DENSE = UNPRUNED.label
# Images on which a-STAR's multiply-adds are counted.
COUNTED = 32
BATCH = 32


@dataclass(frozen=True)
class Speed:
    """One model on one target, timed in one run with all others."""

    images_per_s: float
    median_ms: float
    file_bytes: int


@dataclass(frozen=True, eq=False)
class Bench:
    """A model with its calibration, and the images of both halves; each measurement is made once."""

    vit: PrunableViT
    calibration: Calibration | None
    job: Job
    ledger: Ledger

    def schedule(self, candidate: Candidate) -> Schedule | None:
        """Return the schedule of a candidate; None where its share is out of reach or a calibration is missing."""
        if candidate.calibrated and self.calibration is None:
            return None
        found = self.ledger.record(f"rho, {candidate.on('').label}", lambda: self._rho(candidate))
        planner = Planner.of(self.vit.spec, candidate.scoring, self.calibration)
        return None if found is None else planner.of_rho(found)

    def _rho(self, candidate: Candidate) -> float | None:
        planner = Planner.of(self.vit.spec, candidate.scoring, self.calibration)
        counts_vary = candidate.method.counts_vary
        try:
            macs = self._image_macs if counts_vary else None
            return plan(MacShare(candidate.mac_reduction), planner, image_macs=macs).rho
        except ScheduleError:
            return None

    @cached_property
    def _image_macs(self) -> Callable[[Schedule], float]:
        images = replace(self.job.images, check_images=COUNTED)
        return measured_macs(self.vit, images, self.calibration, BATCH)

    def pruned(self, schedule: Schedule | None) -> PrunedViT:
        """Return the PyTorch model of a schedule, or the unpruned one."""
        if schedule is None:
            return steps.dense(self.vit)
        return steps.prune(self.vit, schedule, self.calibration)

    def predicted(
        self, name: str, files: Sequence[ImageFile], part: str, model: Callable[[], Runner]
    ) -> Array:
        """Return the class that a model gives each image; `part` names the images."""
        return self.ledger.answers(f"answers, {name}, {part}", lambda: self._predict(model(), files))

    def labels(self, files: Sequence[ImageFile], part: str) -> Array:
        """Return the class of each of those images that can be read."""
        return self.ledger.answers(f"labels, {part}", lambda: self._labels(files))

    def _labels(self, files: Sequence[ImageFile]) -> Array:
        loaded = batches(files, self.vit.spec.preprocessing, InputKind.UINT8, BATCH)
        return np.concatenate([labels for _, labels in loaded])

    def _predict(self, runner: Runner, files: Sequence[ImageFile]) -> Array:
        found = []
        with runner:
            for images, _ in batches(files, self.vit.spec.preprocessing, InputKind.FLOAT32, BATCH):
                found.append(top_classes(runner.run({IMAGES: images})[LOGITS], 1)[:, 0])
        return np.concatenate(found)

    def reference(self, schedule: Schedule | None) -> Runner:
        """Return the PyTorch model."""
        return reference_runner(self.pruned(schedule), threads=self.job.measuring.threads or None)

    def lowered(self, schedule: Schedule | None, target: Target) -> Runner:
        """Return the lowered model on its runtime."""
        return self._runner(self._files(schedule, [target])[0], target)

    def speeds(
        self, schedules: Mapping[str, Schedule | None], targets: Sequence[Target]
    ) -> dict[tuple[str, str], Speed]:
        """Time the models of all schedules on all targets in one run, by name and target."""
        name = f"speeds, {sorted(schedules)}, {sorted(target.name for target in targets)}"
        told = self.ledger.record(name, lambda: self._speeds(schedules, targets))
        return {(each["name"], each["target"]): Speed(**each["speed"]) for each in told}

    def _speeds(
        self, schedules: Mapping[str, Schedule | None], targets: Sequence[Target]
    ) -> list[dict[str, Any]]:
        files = {
            (name, target.name): content
            for name, schedule in schedules.items()
            for target, content in zip(targets, self._files(schedule, targets), strict=True)
        }
        measuring = self.job.measuring
        runners = {
            f"{name}\t{target}": self._runner(content, TARGETS[target])
            for (name, target), content in files.items()
        }
        feed = {IMAGES: resized(self.pixels, measuring.batch)}
        times = throughput(runners, feed, batch=measuring.batch, rounds=measuring.rounds)
        return [
            {
                "name": name,
                "target": target,
                "speed": Speed(
                    times[f"{name}\t{target}"].images_per_s,
                    times[f"{name}\t{target}"].median_ms,
                    len(content),
                ),
            }
            for (name, target), content in files.items()
        ]

    def _files(self, schedule: Schedule | None, targets: Sequence[Target]) -> list[bytes]:
        if schedule is not None and schedule.adaptive:
            models = [self._adaptive(schedule, target) for target in targets]
        else:
            models = list(lower_each(self.pruned(schedule), targets, InputKind.FLOAT32, self.ranges))
        return [model.SerializeToString() for model in models]

    def _adaptive(self, schedule: Schedule, target: Target) -> onnx.ModelProto:
        """Lower an a-STAR model in the target's best layout."""
        layout = target.layout(None)
        pruned = steps.prune(self.vit, schedule, self.calibration, layout)
        return steps.export(pruned, Lowering(target, layout), self.ranges)

    def _runner(self, content: bytes, target: Target) -> Runner:
        return runner_for(content, target, on_this_cpu(target, self.job.measuring.threads), name=target.name)

    @cached_property
    def pixels(self) -> Array:
        """Calibration images, or evaluation images where there are none, for timing."""
        images, batch = self.job.images, self.job.measuring.batch
        place = images.images or images.eval_images
        assert place is not None
        files = sample(images_at(place), batch, images.seed).files
        return first_images(files, self.vit.spec.preprocessing, InputKind.FLOAT32, batch)

    @cached_property
    def ranges(self) -> Array | None:
        """Calibration images for the activation ranges of INT8."""
        return steps.range_images(self.job.images, self.vit.spec, InputKind.FLOAT32, *TARGETS.values())

    def macs(self, schedule: Schedule | None) -> float:
        """Return the multiply-adds of an image, under a-STAR the mean."""
        pruned = self.pruned(schedule)
        if schedule is None or not schedule.adaptive:
            return float(pruned.macs.total)
        name = f"macs, {schedule.scorer}, {schedule.alpha:.6g}, {schedule.rho!r}"
        return float(self.ledger.record(name, lambda: useful_macs(pruned, self.pixels, InputKind.FLOAT32)))
