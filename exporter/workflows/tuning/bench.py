"""The measurements of a search: what candidates predict, in PyTorch or on a runtime, and how fast they are."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from exporter.data.batches import View
from exporter.data.images import ImageFolder
from exporter.data.source import ImageSource
from exporter.evaluation.accuracy import Predictions
from exporter.evaluation.benchmark import Throughput
from exporter.evaluation.benchmark.batch_sweep import filled_batch
from exporter.evaluation.parity.reference import reference_runner
from exporter.formats.canonical_json import from_json, to_json
from exporter.models.base import PrunableViT
from exporter.pruning.pruned_vit import PrunedViT
from exporter.records import Schedule
from exporter.runtimes.base import Runner
from exporter.targets import TARGETS, Target
from exporter.vocabulary import InputKind, Layout
from exporter.workflows import steps
from exporter.workflows.evaluating.models import EvalModel
from exporter.workflows.evaluating.predicting import predict_models
from exporter.workflows.evaluating.settings import EvalSettings
from exporter.workflows.measuring import Lowered, lowered, mean_useful_macs, timed
from exporter.workflows.recipes.job import Job
from exporter.workflows.recipes.requests import Lowering
from exporter.workflows.tuning.axes import OWN, Candidate
from exporter.workflows.tuning.ledger import Ledger
from exporter.workflows.tuning.networks import Network, measurement
from exporter.workflows.tuning.schedules import Schedules

__all__ = ["Bench", "Timed"]

Array = np.ndarray[Any, Any]

BATCH = 32


@dataclass(frozen=True)
class Timed:
    """One model on one target, timed in one run with all others."""

    throughput: Throughput
    file_bytes: int

    @property
    def images_per_s(self) -> float:
        """Images a second, at the median."""
        return self.throughput.images_per_s

    @property
    def median_ms(self) -> float:
        """The median time of a batch."""
        return self.throughput.median_ms


@dataclass(frozen=True, eq=False)
class Bench:
    """The networks of a search by name, the model under `OWN`; each measurement is made once.

    `pixels` are the images to time on, as the lowered models take them. Many models are lowered: in the folder
    `scratch`, they take no memory.
    """

    networks: Mapping[str, Network]
    job: Job
    ledger: Ledger
    scratch: Path
    pixels: Array

    @classmethod
    @contextmanager
    def of(cls, network: Network, job: Job, pixels: Array) -> Iterator["Bench"]:
        """Open a bench of one network, whose measurements are kept until it is closed."""
        with TemporaryDirectory(prefix="star-export-") as folder:
            scratch = Path(folder)
            yield cls({OWN: network}, job, Ledger(scratch / "measurements", ""), scratch, pixels)

    @property
    def vit(self) -> PrunableViT:
        """The model."""
        return self.networks[OWN].vit

    def schedule(self, candidate: Candidate) -> Schedule | None:
        """Return the schedule of a candidate; None where its amount is out of reach or a calibration is missing."""
        return self._schedules.of(candidate)

    @cached_property
    def _schedules(self) -> Schedules:
        return Schedules(self.networks, self.job, self.ledger)

    @property
    def input_kind(self) -> InputKind:
        """What the models take."""
        return self.job.lowering.input_kind

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
        images = filled_batch(self.pixels, self.job.measuring.batch)
        return float(self.ledger.record(name, lambda: mean_useful_macs(pruned, images, self.input_kind)))

    def predicted(self, candidate: Candidate, images: ImageFolder, part: str) -> Predictions:
        """Return the class that a candidate gives each image, on its target or in PyTorch, and the true one.

        Under a launcher, all processes share the work. `part` names the images.
        """
        name = f"{measurement('answers', candidate, self.networks)}, {part}"
        told = self.ledger.record(name, lambda: self._predict(candidate, images), together=True)
        self.skipped.update(told.get("skipped", {}))
        return Predictions(np.array(told["classes"], np.int64)[:, None], np.array(told["labels"], np.int64))

    @cached_property
    def skipped(self) -> dict[str, str]:
        """Return the reasons of the images that could not be read when candidates predicted, by name."""
        return {}

    def _predict(self, candidate: Candidate, images: ImageFolder) -> dict[str, Any]:
        spec = self.networks[candidate.weights].vit.spec
        view = View(spec.preprocessing, self.input_kind)
        runner = self._runner(candidate)
        model = EvalModel(candidate.label, spec.name, candidate.target, runner, view, spec.num_classes)
        source = ImageSource(images.root, images.files, len(images.files), {})
        answers = predict_models([model], source, EvalSettings(batch=BATCH), lambda *_: None)
        (found,), skipped = answers.found, answers.skipped
        return {"classes": found.best[:, 0].tolist(), "labels": found.labels.tolist(), "skipped": skipped}

    def _runner(self, candidate: Candidate) -> Runner:
        threads = self.job.measuring.threads
        if not candidate.target:
            return reference_runner(self.pruned(candidate), self.input_kind, threads=threads or None)
        (model,) = self.lowered(candidate, [TARGETS[candidate.target]])
        return model.runner(threads)

    def lowered(self, candidate: Candidate, targets: Sequence[Target]) -> list[Lowered]:
        """Lower a candidate for each target, an a-STAR model in each target's best layout; each is lowered once."""
        missing = [target for target in targets if candidate.on(target.name) not in self._files]
        schedule = self.schedule(candidate)
        if schedule is not None and schedule.adaptive:
            made = [self._adaptive(candidate, target) for target in missing]
        else:
            made = lowered(self.pruned(candidate), missing, self.input_kind, self.ranges)
        for each in made:
            path = self.scratch / f"{len(self._files)}.onnx"
            path.write_bytes(each.content)
            self._files[candidate.on(each.target.name)] = path
        return [Lowered(self._files[candidate.on(each.name)].read_bytes(), each) for each in targets]

    @cached_property
    def _files(self) -> dict[Candidate, Path]:
        return {}

    def _adaptive(self, candidate: Candidate, target: Target) -> Lowered:
        own = self.job.lowering
        layout = own.layout if target == own.target else target.layout(None)
        lowering = Lowering(target, layout, self.input_kind)
        model = steps.export(self.pruned(candidate, layout), lowering, self.ranges)
        return Lowered(model.SerializeToString(), target)

    def speeds(self, some: Collection[Candidate], targets: Sequence[Target]) -> dict[Candidate, Timed]:
        """Time candidates on all targets in one run; the keys are the candidates, each on its target."""
        every = [(each, each.on(target.name)) for each in some for target in targets]
        digests = [self.networks[each.weights].digest for each in some]
        name = f"speeds, {to_json([placed for _, placed in every])}, {to_json(digests)}"
        told = self.ledger.record(name, lambda: self._speeds(some, targets))
        read = (from_json(Timed, to_json(each), source="a measurement") for each in told)
        return {placed: each for (_, placed), each in zip(every, read, strict=True)}

    def _speeds(self, some: Collection[Candidate], targets: Sequence[Target]) -> list[dict[str, Any]]:
        models = dict(enumerate(model for each in some for model in self.lowered(each, targets)))
        times = timed(models, self.pixels, self.job.measuring)
        return [asdict(Timed(times[place], len(model.content))) for place, model in models.items()]

    @cached_property
    def ranges(self) -> Array | None:
        """Calibration images for the activation ranges of INT8."""
        return steps.range_images(self.job.images, self.vit.spec, self.input_kind, *TARGETS.values())
