"""The book of a search: what is measured of variants, each once, and cached on disk; and what that depends on."""

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from exporter.calibration.calibrate import calibrate_to
from exporter.calibration.record import Calibration, load_calibration
from exporter.core.base.canonical_json import from_json, to_json
from exporter.core.base.files import Unfinished
from exporter.core.base.large_onnx import bytes_of
from exporter.core.base.machine import cpu_model
from exporter.core.base.records import Schedule
from exporter.core.base.tensor_names import IMAGES, Array
from exporter.core.schedule.plan import Cost
from exporter.core.verify.reference import image_cost, mean_useful_macs
from exporter.data.images import ImageFolder, listing_sha256
from exporter.jobs.network import Network
from exporter.jobs.predicting import predict_models
from exporter.jobs.variant import Variant, lowered_together
from exporter.measure.batch_sweep import filled_batch
from exporter.measure.benchmark import throughput
from exporter.measure.settings import BATCH
from exporter.processes import processes
from exporter.tuning.choice import Timed


class Book:
    """Finished measurements, a line of a file each: a run that was killed goes on, and measures nothing twice.

    Under a launcher, the main process reads and writes. `identity` is what the measurements depend on beside
    what each one names: images, versions. `spent_s` is how long those took that were asked for, now or before.
    """

    spent_s = 0.0

    def __init__(self, path: Path, identity: str) -> None:
        self._file = Unfinished(path, "search", identity)
        self._known: dict[str, Any] = {}
        self._seconds: dict[str, float] = {}
        for line in self._file.records() if processes().main else ():
            self._known[line["key"]] = line["value"]
            self._seconds[line["key"]] = line["seconds"]

    def record(
        self,
        subject: str,
        of: object,
        measure: Callable[[], Any],
        *,
        together: bool = False,
    ) -> Any:
        """Return plain values, measured unless they are known.

        `of` is all that they depend on. With `together`, every process of a launcher measures its part;
        otherwise the main one does, while the others wait.
        """
        crew = processes()
        key = hashlib.sha256(to_json([subject, of]).encode()).hexdigest()[:24]
        known = crew.of_main(self._known.get(key))
        if known is None:
            start_s = time.perf_counter()
            value = measure() if together or crew.main else None
            known = crew.of_main(json.loads(to_json(value)))
            if crew.main:
                seconds = time.perf_counter() - start_s
                self._known[key], self._seconds[key] = known, seconds
                line = {"key": key, "what": subject, "seconds": seconds, "value": known}
                self._file.append(line)
        self.spent_s += self._seconds.pop(key, 0.0)
        return known

    def calibration(
        self, network: Network, path: Path
    ) -> tuple[Calibration, dict[str, str]]:
        """Calibrate a network into a file, for variants of any scorer; return also why images were skipped."""
        settings = replace(network.recipe.calibrate, relevance=True)
        with network.stages.stage("calibration") as advance:

            def calibrate() -> dict[str, Any]:
                done = calibrate_to(
                    path, network.full, network.folder, settings, advance
                )
                return {
                    "inter_sha256": done.inter_sha256,
                    "skipped": dict(done.skipped),
                }

            of = (listing_sha256(network.folder), settings, network.full.weights_sha256)
            measured = self.record("calibration", of, calibrate, together=True)
            digest = measured["inter_sha256"]
            if not path.exists() or load_calibration(path).inter_sha256 != digest:
                calibrate()
            processes().wait()
        return load_calibration(path), measured["skipped"]

    def answers(
        self, name: str, variant: Variant, part: str, images: ImageFolder
    ) -> dict[str, Any]:
        """Return the classes that a variant gives the images of a part, and their labels.

        All processes share the work.
        """
        subject = f"answers on the part {part}: {name}"
        measure = partial(predict, name, variant, images)
        return dict(self.record(subject, identity_of(variant), measure, together=True))

    def times(self, variants: Mapping[str, Variant], pixels: Array) -> dict[str, Timed]:
        """Return the times of variants by name, which are interleaved in one run."""
        of = {name: identity_of(variant) for name, variant in variants.items()}
        subject = f"speed of {len(variants)} models"
        measured = self.record(subject, of, partial(time_together, variants, pixels))
        source = "a measurement"
        return {
            name: from_json(Timed, to_json(measured[name]), source=source)
            for name in variants
        }

    def useful_macs(self, variant: Variant, pixels: Array) -> float:
        """Return the multiply-adds of an image, under a-STAR the mean of these images."""
        if not variant.schedule.adaptive:
            return float(variant.pruned.macs.total)
        kind = variant.network.input_kind
        count = partial(mean_useful_macs, variant.pruned, pixels, kind)
        return float(self.record("multiply-adds", identity_of(variant), count))

    def cost_by_rho(
        self, variant: Variant, schedules: Sequence[Schedule], pixels: Array
    ) -> Cost:
        """Return a-STAR's mean multiply-adds, counted on images for some schedules and linear in rho between them.

        To solve rho for every share by itself would run the model ten times as often.
        """
        network = variant.network
        of = [schedules, network.full.spec, network.full.weights_sha256]

        def count() -> list[float]:
            macs = image_cost(network.full, pixels, variant.inter, BATCH)
            return [macs(schedule) for schedule in schedules]

        counted = self.record("multiply-adds by rho", of, count)
        rhos = [schedule.rho or 1.0 for schedule in schedules]
        return lambda schedule: float(np.interp(schedule.rho or 1.0, rhos, counted))


def identity_of(variant: Variant) -> list[Any]:
    """Return all that a measurement of a variant depends on, beside images.

    PyTorch's answers hold on any machine; another CPU takes other times, and rounds INT8 otherwise.
    """
    model = variant.network.full
    target = (
        "" if variant.lowering is None else f"{variant.target.name} on {cpu_model()}"
    )
    return [variant.schedule, target, model.spec, model.weights_sha256]


def predict(name: str, variant: Variant, images: ImageFolder) -> dict[str, Any]:
    """Return the class that a variant gives each image, as plain values."""
    answers = predict_models([variant.ready(name)], images, BATCH, lambda *_: None)
    (predictions,) = answers.predictions
    classes = predictions.best[:, 0].tolist()
    labels = predictions.labels.tolist()
    return {"classes": classes, "labels": labels, "skipped": answers.skipped}


def time_together(variants: Mapping[str, Variant], pixels: Array) -> dict[str, Timed]:
    """Time variants, each on its target, interleaved in one run."""
    _lower(list(variants.values()))
    measuring = next(iter(variants.values())).network.measuring
    runners = {name: variant.ready(name).runner for name, variant in variants.items()}
    feed = {IMAGES: filled_batch(pixels, measuring.batch)}
    times = throughput(runners, feed, batch=measuring.batch, rounds=measuring.rounds)
    timed = {}
    for name, variant in variants.items():
        timed[name] = Timed(times[name], bytes_of(variant.file.path))
    return timed


def _lower(variants: Sequence[Variant]) -> None:
    """Write the files that variants lack; those of one schedule share torch's export, unless layouts differ."""
    groups: dict[int, list[Variant]] = {}
    for variant in variants:
        if not variant.is_lowered:
            shared = variant if variant.schedule.adaptive else variant.schedule
            groups.setdefault(id(shared), []).append(variant)
    for group in groups.values():
        for variant, model in zip(group, lowered_together(group), strict=True):
            variant.save(model)
