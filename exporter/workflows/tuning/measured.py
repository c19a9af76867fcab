"""What a search measures of candidates: the classes that they give images, and their times; each once, on disk."""

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from exporter.calibration.calibrate import calibrate_to
from exporter.calibration.record import Calibration, load_calibration
from exporter.data.batches import draw_images
from exporter.data.images import ImageFolder, listing_sha256
from exporter.data.source import images_at
from exporter.errors import ScheduleError
from exporter.evaluation.accuracy import Predictions
from exporter.evaluation.batch_sweep import filled_batch
from exporter.evaluation.benchmark import throughput
from exporter.evaluation.parity.reference import image_cost, mean_useful_macs
from exporter.files import Unfinished
from exporter.formats.canonical_json import from_json, to_json
from exporter.lowering.pipeline import lower, lower_each
from exporter.machine import cpu_model
from exporter.processes import processes
from exporter.pruning.pruned_vit import PrunedViT
from exporter.records import Pair, Schedule
from exporter.runtimes.choice import runner_here
from exporter.schedule.plan import Cost, keep_everything, schedule_of
from exporter.schedule.policy import Need, resolve
from exporter.schedule.prune import Prune
from exporter.schedule.rates import LEAST_RHO
from exporter.targets import TARGETS, Target
from exporter.tensor_names import IMAGES, Array
from exporter.vocabulary import InputKind, Layout
from exporter.workflows import steps
from exporter.workflows.opened import Opened
from exporter.workflows.predicting import EvalModel, predict_models, torch_model
from exporter.workflows.tuning.choice import Timed
from exporter.workflows.tuning.ways import OWN, UNPRUNED, Candidate

BATCH = 32
# Images on which a-STAR's multiply-adds are counted, and the rho at which they are.
COUNTED = 32
RHOS = (LEAST_RHO, *(step / 12 for step in range(1, 13)))


class Book:
    """Finished measurements, a line of a file each: a run that was killed goes on, and measures nothing twice.

    Under a launcher, the main process reads and writes. `identity` is what the measurements depend on beside
    what each one names: images, versions.
    """

    def __init__(self, path: Path, identity: str) -> None:
        self._file = Unfinished(path, "search", identity)
        self._known = {}
        for told in self._file.records() if processes().main else ():
            with suppress(KeyError, TypeError):
                self._known[told["key"]] = told["value"]

    def record(
        self, what: str, of: object, measure: Callable[[], Any], *, together: bool = False
    ) -> Any:
        """Return plain values, measured unless they are known.

        `of` is all that it depends on. With `together`, every process of a launcher measures its part;
        otherwise the main one does, while the others wait.
        """
        crew = processes()
        key = hashlib.sha256(to_json([what, of]).encode()).hexdigest()[:24]
        known = crew.of_main(self._known.get(key))
        if known is None:
            value = measure() if together or crew.main else None
            known = crew.of_main(json.loads(to_json(value)))
            if crew.main:
                self._known[key] = known
                self._file.append({"key": key, "what": what, "value": known})
        return known


def calibrated(opened: Opened, path: Path, book: Book) -> tuple[Opened, dict[str, str]]:
    """Return a model with a calibration for every candidate, and the images that were skipped with reasons.

    Without images to calibrate on, and where it has a calibration or is pruned as it was trained, it is as it was.
    """
    if (
        opened.as_given is not None
        or opened.calibration is not None
        or opened.recipe.images.images is None
    ):
        return opened, {}
    settings = replace(opened.recipe.calibrate, relevance=True)
    with opened.stages.stage("calibration") as advance:

        def calibrate() -> dict[str, Any]:
            done = calibrate_to(path, opened.whole, opened.folder, settings, advance)
            return {"inter_sha256": done.inter_sha256, "skipped": dict(done.skipped)}

        told = (listing_sha256(opened.folder), settings, opened.whole.weights_sha256)
        made = book.record("calibration", told, calibrate, together=True)
        if not path.exists() or load_calibration(path).inter_sha256 != made["inter_sha256"]:
            calibrate()
    return replace(
        opened, recipe=opened.recipe.but(prune={"calibration": path}), own=opened.whole
    ), made["skipped"]


@dataclass(frozen=True, eq=False)
class Meter:
    """Measures candidates: the classes that they give images, and how fast they are.

    `networks` and the parts of the `images` are by name, the model is under `OWN`. By the metric "top1", images
    have their labels, by "agreement" the unpruned model's classes.
    """

    networks: dict[str, Opened]
    book: Book
    scratch: Path
    images: Mapping[str, ImageFolder]
    metric: str = "top1"
    seen: set[Candidate] = field(default_factory=set)
    skipped: dict[str, str] = field(default_factory=dict)
    calibration_skipped: dict[str, str] = field(default_factory=dict)
    _files: dict[Candidate, Path] = field(default_factory=dict)
    _schedules: dict[Candidate, Schedule | None] = field(default_factory=dict)

    @property
    def opened(self) -> Opened:
        """The model's recipe."""
        return self.networks[OWN]

    @cached_property
    def pixels(self) -> Array:
        """Images to time on, as the lowered models take them: those to calibrate on, where there are any."""
        recipe, preprocessing = self.opened.recipe, self.opened.whole.spec.preprocessing
        kind, batch = recipe.lower.input_kind, recipe.measure.batch
        images = draw_images(self._some, batch, recipe.images.seed, preprocessing, kind)
        return filled_batch(images, batch)

    @cached_property
    def _some(self) -> ImageFolder:
        """The images to calibrate on; without, those to measure on."""
        place = self.opened.recipe.images.eval_images
        if self.opened.recipe.images.images is not None or place is None:
            return self.opened.folder
        return images_at(place)

    @cached_property
    def ranges(self) -> Array | None:
        """Calibration images for the activation ranges of INT8."""
        return self.opened.ranges(*TARGETS.values())

    def schedule(self, candidate: Candidate) -> Schedule | None:
        """Return the schedule of a candidate, whatever its target.

        None where its amount is out of reach, or a calibration is missing.
        """
        anywhere, network = candidate.on(""), self.networks[candidate.weights]
        if candidate.calibrated and network.calibration is None and not candidate.given:
            return None
        if anywhere not in self._schedules:
            self._schedules[anywhere] = self._solved(anywhere, network)
        return self._schedules[anywhere]

    def _solved(self, candidate: Candidate, network: Opened) -> Schedule | None:
        prune, spec, calibration = (
            candidate.prune,
            network.whole.spec,
            self._calibration(candidate),
        )
        if candidate.given or prune is None:
            return network.as_given if candidate.given else keep_everything(spec)
        policy, cost = resolve(prune), None
        if Need.COST in policy.needs:
            cost = self._macs_by_rho(candidate, prune)
        try:
            return schedule_of(policy, spec, calibration, image_cost=cost)
        except ScheduleError:
            return None

    def _macs_by_rho(self, candidate: Candidate, prune: Prune) -> Cost:
        """Return a-STAR's mean multiply-adds, counted on images at a few rho and linear in between.

        To solve rho for every share by itself would run the model ten times as often.
        """
        network, calibration = self.networks[candidate.weights], self._calibration(candidate)
        spec, seed = network.whole.spec, self.opened.recipe.images.seed
        free = replace(prune, mac_reduction=None, rho=None)

        def count() -> list[float]:
            kind = InputKind.FLOAT32
            pixels = draw_images(self._some, COUNTED, seed, spec.preprocessing, kind)
            macs = image_cost(network.whole, pixels, calibration, BATCH)
            plans = (
                schedule_of(resolve(replace(free, rho=rho)), spec, calibration) for rho in RHOS
            )
            return [macs(each) for each in plans]

        told = self._told(replace(candidate, prune=free))
        counted = self.book.record("multiply-adds by rho", [told, RHOS], count)
        return lambda schedule: float(np.interp(schedule.rho or 1.0, RHOS, counted))

    def _calibration(self, candidate: Candidate) -> Calibration | None:
        """Return what a candidate takes: a measurement of one that needs none holds before there is one."""
        return self.networks[candidate.weights].calibration if candidate.calibrated else None

    def _told(self, candidate: Candidate) -> list[Any]:
        """Return all that a measurement of a candidate depends on, beside images.

        PyTorch's answers hold on any machine; another CPU takes other times, and rounds INT8 otherwise.
        """
        network, calibration = self.networks[candidate.weights], self._calibration(candidate)
        record = None if calibration is None else calibration.record
        return [
            candidate,
            cpu_model() if candidate.target else "",
            network.whole.spec,
            network.whole.weights_sha256,
            record,
            network.as_given,
        ]

    def pruned(self, candidate: Candidate, layout: Layout = Layout.SHRINKING) -> PrunedViT:
        """Return the PyTorch model of a candidate, which is within reach."""
        schedule = self.schedule(candidate)
        assert schedule is not None
        vit = self.networks[candidate.weights].whole
        return steps.prune(vit, schedule, self._calibration(candidate), layout)

    def macs(self, candidate: Candidate) -> float:
        """Return the multiply-adds of an image, under a-STAR the mean of those that are timed."""
        pruned = self.pruned(candidate)
        if not pruned.schedule.adaptive:
            return float(pruned.macs.total)
        kind = self.opened.recipe.lower.input_kind
        told = self._told(candidate.on(""))
        return float(
            self.book.record(
                "multiply-adds", told, lambda: mean_useful_macs(pruned, self.pixels, kind)
            )
        )

    def answers(self, candidate: Candidate, *parts: str) -> Predictions:
        """Return the class that a candidate gives each image of some parts: on its target, or in PyTorch.

        All processes share the work.
        """
        self.seen.add(candidate.on(""))
        told, found = self._told(candidate), list[Array]()
        for part in (each for each in parts if self.images[each].files):
            what, predict = (
                f"answers on the part {part}: {candidate.label}",
                partial(self._predict, candidate, part),
            )
            made = self.book.record(what, told, predict, together=True)
            self.skipped.update(made["skipped"])
            found.append(np.array([made["classes"], made["labels"]], np.int64))
        classes, labels = np.concatenate(found, axis=1)
        if self.metric != "top1":
            own = candidate == UNPRUNED
            labels = classes if own else self.answers(UNPRUNED, *parts).best[:, 0]
        return Predictions(classes[:, None], labels)

    def paired(self, candidate: Candidate, *parts: str) -> Pair[Predictions]:
        """Return the answers of the unpruned model and of a candidate."""
        return Pair(self.answers(UNPRUNED, *parts), self.answers(candidate, *parts))

    def _predict(self, candidate: Candidate, part: str) -> dict[str, Any]:
        kind, threads = self.opened.recipe.lower.input_kind, self.opened.recipe.measure.threads
        if candidate.target:
            target = TARGETS[candidate.target]
            path = self.lower([candidate])[candidate]
            spec = self.networks[candidate.weights].whole.spec
            runner = runner_here(path, target, threads, name=target.name)
            model = EvalModel(candidate.label, spec.name, target.runtime, runner, spec, kind)
        else:
            model = torch_model(
                self.pruned(candidate), candidate.label, threads=threads, input_kind=kind
            )
        answers = predict_models([model], self.images[part], BATCH, lambda *_: None)
        (found,) = answers.found
        classes, labels = found.best[:, 0].tolist(), found.labels.tolist()
        return {"classes": classes, "labels": labels, "skipped": answers.skipped}

    def lower(self, placed: Collection[Candidate]) -> dict[Candidate, Path]:
        """Lower candidates into files for their targets, each once; those of one candidate share torch's export."""
        missing: dict[Candidate, list[Target]] = {}
        for each in placed:
            if each not in self._files:
                missing.setdefault(each.on(""), []).append(TARGETS[each.target])
        for candidate, targets in missing.items():
            for target, content in self._lowered(candidate, targets):
                path = self.scratch / f"{len(self._files)}.onnx"
                path.write_bytes(content)
                self._files[candidate.on(target.name)] = path
        return {each: self._files[each] for each in placed}

    def _lowered(
        self, candidate: Candidate, targets: Sequence[Target]
    ) -> Iterator[tuple[Target, bytes]]:
        """Yield a candidate for each target, an a-STAR model in each target's best layout."""
        kind, pruned = self.opened.recipe.lower.input_kind, self.pruned(candidate)
        if not pruned.schedule.adaptive:
            models = lower_each(pruned, targets, kind, self.ranges)
            yield from (
                (each, model.SerializeToString())
                for each, model in zip(targets, models, strict=True)
            )
            return
        for target in targets:
            own = lower(self.pruned(candidate, target.layout(None)), target, kind, self.ranges)
            yield target, own.SerializeToString()

    def speeds(self, placed: Collection[Candidate]) -> dict[Candidate, Timed]:
        """Time candidates, each on its target, interleaved in one run."""
        every = list(dict.fromkeys(placed))
        what = f"speed of {len(every)} models"
        told = self.book.record(
            what, [self._told(each) for each in every], lambda: self._speeds(every)
        )
        read = (from_json(Timed, to_json(each), source="a measurement") for each in told)
        return dict(zip(every, read, strict=True))

    def _speeds(self, placed: Sequence[Candidate]) -> list[dict[str, Any]]:
        measuring = self.opened.recipe.measure
        runners = {
            each: runner_here(path, TARGETS[each.target], measuring.threads, name=each.target)
            for each, path in self.lower(placed).items()
        }
        feed = {IMAGES: filled_batch(self.pixels, measuring.batch)}
        times = throughput(runners, feed, batch=measuring.batch, rounds=measuring.rounds)
        return [asdict(Timed(times[each], self._files[each].stat().st_size)) for each in placed]
