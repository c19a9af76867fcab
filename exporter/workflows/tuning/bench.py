"""The measurements of a search: what candidates predict, in PyTorch or on a runtime, and how fast they are."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from exporter.data.batches import View, first_images
from exporter.data.images import ImageFolder, sample
from exporter.data.source import ImageSource, images_at
from exporter.evaluation.accuracy import Predictions
from exporter.evaluation.parity.reference import reference_runner
from exporter.formats.canonical_json import to_json
from exporter.models.base import PrunableViT
from exporter.pruning.pruned_vit import PrunedViT
from exporter.records import Schedule
from exporter.runtimes.base import Runner
from exporter.targets import TARGETS, Target
from exporter.vocabulary import InputKind, Layout
from exporter.workflows import steps
from exporter.workflows.eval_models import EvalModel
from exporter.workflows.eval_settings import EvalSettings
from exporter.workflows.measuring import Lowered, lowered, timed, useful_macs
from exporter.workflows.predicting import predict_models
from exporter.workflows.requests import Lowering
from exporter.workflows.resolve import Job
from exporter.workflows.tuning.axes import OWN, Candidate
from exporter.workflows.tuning.ledger import Ledger
from exporter.workflows.tuning.networks import Network, measurement
from exporter.workflows.tuning.schedules import Schedules

__all__ = ["Bench", "Speed"]

Array = np.ndarray[Any, Any]

BATCH = 32


@dataclass(frozen=True)
class Speed:
    """One model on one target, timed in one run with all others."""

    images_per_s: float
    median_ms: float
    file_bytes: int


@dataclass(frozen=True, eq=False)
class Bench:
    """The networks of a search by name, the model under `OWN`; each measurement is made once.

    Many models are lowered: in the folder `scratch`, they take no memory.
    """

    networks: Mapping[str, Network]
    job: Job
    ledger: Ledger
    scratch: Path

    @property
    def vit(self) -> PrunableViT:
        """The model."""
        return self.networks[OWN].vit

    def schedule(self, candidate: Candidate) -> Schedule | None:
        """Return the schedule of a candidate; None where its amount is out of reach or a calibration is missing."""
        return self._schedules.of(candidate)

    @cached_property
    def _schedules(self) -> Schedules:
        return Schedules(self.networks, self.job.images, self.ledger)

    def pruned(self, candidate: Candidate, layout: Layout = Layout.SHRINKING) -> PrunedViT:
        """Return the PyTorch model of a candidate, which is within reach."""
        network, schedule = self.networks[candidate.weights], self.schedule(candidate)
        assert schedule is not None
        return steps.prune(network.vit, schedule, network.calibration, layout)

    def macs(self, candidate: Candidate) -> float:
        """Return the multiply-adds of an image, under a-STAR the mean."""
        pruned = self.pruned(candidate)
        if not pruned.schedule.adaptive:
            return float(pruned.macs.total)
        name = measurement("macs", candidate.on(""), self.networks)
        return float(self.ledger.record(name, lambda: useful_macs(pruned, self.pixels, InputKind.FLOAT32)))

    def predicted(self, candidate: Candidate, images: ImageFolder, part: str) -> Predictions:
        """Return the class that a candidate gives each image, on its target or in PyTorch, and the true one.

        Under a launcher, all processes share the work. `part` names the images.
        """
        name = f"{measurement('answers', candidate, self.networks)}, {part}"
        told = self.ledger.record(name, lambda: self._predict(candidate, images), together=True)
        return Predictions(np.array(told["classes"], np.int64)[:, None], np.array(told["labels"], np.int64))

    def _predict(self, candidate: Candidate, images: ImageFolder) -> dict[str, list[int]]:
        spec = self.networks[candidate.weights].vit.spec
        view = View(spec.preprocessing, InputKind.FLOAT32)
        runner = self._runner(candidate)
        model = EvalModel(candidate.label, spec.name, candidate.target, runner, view, spec.num_classes)
        source = ImageSource(images.root, images.files, len(images.files), {})
        (found,) = predict_models([model], source, EvalSettings(batch=BATCH), lambda *_: None).found
        return {"classes": found.best[:, 0].tolist(), "labels": found.labels.tolist()}

    def _runner(self, candidate: Candidate) -> Runner:
        threads = self.job.measuring.threads
        if not candidate.target:
            return reference_runner(self.pruned(candidate), threads=threads or None)
        (model,) = self.lowered(candidate, [TARGETS[candidate.target]])
        return model.runner(threads)

    def lowered(self, candidate: Candidate, targets: Sequence[Target]) -> list[Lowered]:
        """Lower a candidate for each target, an a-STAR model in each target's best layout; each is lowered once."""
        missing = [target for target in targets if candidate.on(target.name) not in self._files]
        schedule = self.schedule(candidate)
        if schedule is not None and schedule.adaptive:
            made = [self._adaptive(candidate, target) for target in missing]
        else:
            made = lowered(self.pruned(candidate), missing, InputKind.FLOAT32, self.ranges)
        for each in made:
            path = self.scratch / f"{len(self._files)}.onnx"
            path.write_bytes(each.content)
            self._files[candidate.on(each.target.name)] = path
        return [Lowered(self._files[candidate.on(each.name)].read_bytes(), each) for each in targets]

    @cached_property
    def _files(self) -> dict[Candidate, Path]:
        return {}

    def _adaptive(self, candidate: Candidate, target: Target) -> Lowered:
        layout = target.layout(None)
        model = steps.export(self.pruned(candidate, layout), Lowering(target, layout), self.ranges)
        return Lowered(model.SerializeToString(), target)

    def speeds(self, some: Collection[Candidate], targets: Sequence[Target]) -> dict[Candidate, Speed]:
        """Time candidates on all targets in one run; the keys are the candidates, each on its target."""
        every = [(each, each.on(target.name)) for each in some for target in targets]
        digests = [self.networks[each.weights].digest for each in some]
        name = f"speeds, {to_json([placed for _, placed in every])}, {to_json(digests)}"
        told = self.ledger.record(name, lambda: self._speeds(some, targets))
        return {placed: Speed(**speed) for (_, placed), speed in zip(every, told, strict=True)}

    def _speeds(self, some: Collection[Candidate], targets: Sequence[Target]) -> list[dict[str, Any]]:
        models = dict(enumerate(model for each in some for model in self.lowered(each, targets)))
        times = timed(models, self.pixels, self.job.measuring)
        return [
            asdict(Speed(times[place].images_per_s, times[place].median_ms, len(model.content)))
            for place, model in models.items()
        ]

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
