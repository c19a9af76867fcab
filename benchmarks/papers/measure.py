"""Measure a row of a paper's table: accuracy, multiply-adds, throughput. What was measured once is read back."""

import hashlib
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from tables import Way

from exporter.calibration.calibrate import calibrate, calibrate_to
from exporter.calibration.record import Calibration, load_calibration, save_calibration
from exporter.calibration.settings import CalibrationSettings
from exporter.data.batches import first_images
from exporter.data.images import ImageFolder, listing_sha256, sample
from exporter.data.source import images_at, open_source
from exporter.errors import UserError
from exporter.evaluation.benchmark.timing import throughput
from exporter.evaluation.parity.reference import patches_left_of, reference_runner
from exporter.files import writable_folder
from exporter.formats.canonical_json import save_json, to_json
from exporter.models.base import PrunableViT
from exporter.models.registry import ModelRequest, load
from exporter.pruning.pruned_vit import PrunedViT
from exporter.records import Schedule
from exporter.schedule.macs import dense_macs, mean_macs
from exporter.schedule.plan import ScheduleSettings, manual_schedule, star_schedule
from exporter.schedule.scorers import scorer_named
from exporter.tensor_names import IMAGES
from exporter.training.settings import FinetuneSettings
from exporter.vocabulary import Method
from exporter.workflows import steps
from exporter.workflows.eval_settings import EvalSettings
from exporter.workflows.eval_torch import torch_models
from exporter.workflows.finetune import finetune_model
from exporter.workflows.measuring import noise
from exporter.workflows.predicting import predict_models
from exporter.workflows.recipe import Recipe

__all__ = ["Lab", "Numbers", "Place"]

Numbers = dict[str, float | None]
Array = np.ndarray[Any, Any]
# Images whose patch counts give the mean multiply-adds of a-STAR.
COUNTED = 256


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where things are: images to train and to evaluate on, those of another distribution, weights, results.

    `weights` has a file for each model, named after it; `stand_in` names one model to take in place of all. Without
    images or weights, what needs them stays blank.
    """

    images: Path | None = None
    eval_images: Path | None = None
    shifted_images: Path | None = None
    shifted_classes: Path | None = None
    weights: Path | None = None
    stand_in: str | None = None
    out: Path = Path("build/reproduce")
    max_images: int | None = None
    max_eval_images: int | None = None
    device: str = "cpu"
    most_batch: int = 128
    rounds: int = 20
    epochs: int | None = None
    tuning: FinetuneSettings = field(default_factory=FinetuneSettings)

    def request(self, model: str) -> ModelRequest:
        """Return the request of a model of the paper, or of its stand-in."""
        if self.stand_in:
            return ModelRequest(self.stand_in)
        found = sorted(self.weights.glob(f"{model}.*")) if self.weights else []
        return ModelRequest(model, found[0] if found else None)


class Lab:
    """Measures rows; each model and each calibration is made once.

    Args:
        place: Where things are.
    """

    def __init__(self, place: Place) -> None:
        self.place = replace(place, out=writable_folder(place.out))
        self._vits: dict[str, PrunableViT | None] = {}

    def numbers(self, model: str, way: Way, columns: tuple[str, ...]) -> Numbers:
        """Return our number for each column; None where weights or images are missing."""
        vit = self._vit(model)
        if vit is None:
            return dict.fromkeys(columns)
        found: Numbers = {}
        for names, measured in self._groups(model, vit, way).items():
            if set(names) & set(columns):
                found |= self._once(vit, way, names[0], measured)
        return {name: found.get(name) for name in columns}

    def rates(self, model: str, way: Way) -> tuple[float, ...]:
        """Return the retention rate of each layer; nothing where weights or images are missing."""
        vit = self._vit(model)
        made = None if vit is None else self._pruned(vit, way)
        return () if made is None else made[0].schedule.rates

    def kept_shares(self, model: str, way: Way) -> tuple[float, ...]:
        """Return the mean share of its patches that each layer keeps; nothing where something is missing."""
        vit = self._vit(model)
        made = None if vit is None else self._pruned(vit, way)
        if made is None or self.place.eval_images is None:
            return ()
        left = self._left(made[0], way).mean(0)
        return tuple(left / np.array([made[0].schedule.num_patches, *left[:-1]]))

    def _left(self, pruned: PrunedViT, way: Way) -> Array:
        """Return the patches that evaluation images have left after each layer, [images, depth]."""
        assert self.place.eval_images is not None
        files = sample(images_at(self.place.eval_images), COUNTED, 0).files
        pixels = first_images(files, pruned.vit.spec.preprocessing, "float32", COUNTED)
        return patches_left_of(pruned, pixels, "float32", min(way.batch, self.place.most_batch))

    def _groups(self, model: str, vit: PrunableViT, way: Way) -> dict[tuple[str, ...], Callable[[], Numbers]]:
        """Return what measures the columns that belong together."""
        return {
            ("top-1", "top-5"): lambda: self._accuracy(model, vit, way),
            ("GFLOPs", "FLOPs saved, %"): lambda: self._flops(vit, way),
            ("img/s", "speed-up, %"): lambda: self._speed(vit, way),
            ("ACS, s",): lambda: self._acs_time(vit, way),
        }

    def _once(self, vit: PrunableViT, way: Way, what: str, measured: Callable[[], Numbers]) -> Numbers:
        """Return numbers, read where they were measured before with the same weights, images and settings."""
        told = to_json({"way": way, "place": replace(self.place, out=Path()), "what": what})
        key = hashlib.sha256(f"{vit.weights_sha256} {self._listings} {told}".encode()).hexdigest()[:16]
        path = self.place.out / f"{key}.json"
        if not path.exists():
            save_json({"numbers": measured(), "way": way, "what": what}, path)
        numbers: Numbers = json.loads(path.read_text(encoding="utf-8"))["numbers"]
        return numbers

    def _vit(self, model: str) -> PrunableViT | None:
        request = self.place.request(model)
        key = f"{request.name} {request.checkpoint}"
        if key not in self._vits:
            try:
                self._vits[key] = load(request, self.place.device)
            except UserError as error:
                print(f"{model}: {error}", file=sys.stderr)
                self._vits[key] = None
        return self._vits[key]

    @cached_property
    def _train(self) -> ImageFolder | None:
        place = self.place
        return None if place.images is None else sample(images_at(place.images), place.max_images, 0)

    @cached_property
    def _listings(self) -> str:
        folders = (self.place.images, self.place.eval_images, self.place.shifted_images)
        return " ".join("" if each is None else listing_sha256(images_at(each)) for each in folders)

    def _calibration(self, vit: PrunableViT, way: Way) -> Calibration | None:
        """Return the calibration of a way, by the paper's protocol as far as there are images."""
        if self._train is None:
            return None
        settings = self._settings(way, relevance=scorer_named(way.scorer).calibrated)
        key = hashlib.sha256(
            f"{vit.weights_sha256} {self._listings} {to_json(settings)}".encode()
        ).hexdigest()
        path = self.place.out / f"{key[:16]}.calibration.safetensors"
        if path.exists():
            return load_calibration(path)
        return calibrate_to(path, vit, self._train, settings)

    def _settings(self, way: Way, *, relevance: bool) -> CalibrationSettings:
        assert self._train is not None
        total = len(self._train.files)
        return CalibrationSettings(
            protocol="paper",
            images_per_round=min(way.inter_images, total),
            acs_images=min(way.acs_images, total),
            relevance=relevance,
        )

    def _pruned(self, vit: PrunableViT, way: Way) -> tuple[PrunedViT, Calibration | None] | None:
        """Return the pruned model; None where images to calibrate on are missing."""
        if not way.prunes:
            return steps.dense(vit), None
        scoring = ScheduleSettings(
            way.scorer, alpha=way.alpha, method=Method.named(way.method), reduce="drop"
        )
        calibration = self._calibration(vit, way)
        needs_images = not way.rates or scorer_named(way.scorer).calibrated
        if calibration is None and needs_images:
            return None
        inter = "" if calibration is None else calibration.inter_sha256
        schedule: Schedule
        if way.rates:
            rates = {layer: rate for layer, rate in way.rates.items() if layer <= vit.spec.depth}
            schedule = manual_schedule(vit.spec, rates, scoring, inter)
        else:
            assert calibration is not None and way.rho is not None
            schedule = star_schedule(vit.spec, calibration.acs.tolist(), way.rho, scoring, inter)
        return steps.prune(vit, schedule, calibration), calibration

    def _accuracy(self, model: str, vit: PrunableViT, way: Way) -> Numbers:
        place = self.place
        folder = place.shifted_images if way.shifted else place.eval_images
        made = self._pruned(vit, way)
        if made is None or folder is None:
            return {}
        pruned, calibration = made
        if way.epochs and way.prunes:
            if place.images is None:
                return {}
            vit = self._tuned(model, pruned, calibration, way)
        classes = place.shifted_classes if way.shifted else None
        source = open_source(
            [folder], vit.spec.num_classes, class_map=classes, max_images=place.max_eval_images
        )
        subset = None if classes is None else np.array(sorted(source.class_names))
        measured = torch_models(vit, pruned.schedule if way.prunes else None, calibration)[-1:]
        batch = min(way.batch, place.most_batch)
        answers = predict_models(
            measured,
            source,
            EvalSettings(batch=batch),
            lambda done, total: None,  # noqa: ARG005
            classes=subset,
            needs_labels=True,
        )
        accuracy = answers.predictions[0].accuracy
        return {"top-1": 100 * accuracy.top1, "top-5": 100 * accuracy.top5}

    def _tuned(self, model: str, pruned: PrunedViT, calibration: Calibration | None, way: Way) -> PrunableViT:
        """Return the model fine-tuned as it is pruned; the weights are kept."""
        place, request = self.place, self.place.request(model)
        key = hashlib.sha256(
            f"{pruned.vit.weights_sha256} {self._listings} {to_json(way)}".encode()
        ).hexdigest()
        path = place.out / f"{key[:16]}.safetensors"
        epochs = place.epochs or way.epochs
        if not path.exists():
            schedule = path.with_suffix(".schedule.json")
            # The batch-wide form has no gradient of its own: one image's counts would depend on the others.
            method = Method.A_STAR if pruned.schedule.method.counts_vary else pruned.schedule.method
            save_json(replace(pruned.schedule, method=method), schedule)
            scores = path.with_suffix(".scores.safetensors")
            if calibration is not None:
                save_calibration(calibration, scores)
            recipe = Recipe(
                model=request.name,
                checkpoint=request.checkpoint,
                images=place.images,
                eval_images=place.eval_images,
                schedule=schedule,
                calibration=scores if calibration is not None else None,
                max_eval_images=place.max_eval_images or 1000,
                device=place.device,
            )
            finetune_model(recipe, replace(place.tuning, epochs=epochs), path)
        return load(ModelRequest("", path), place.device)

    def _flops(self, vit: PrunableViT, way: Way) -> Numbers:
        made, whole = self._pruned(vit, way), dense_macs(vit.spec).gmacs
        if made is None:
            return {}
        gmacs = made[0].macs.gmacs
        if made[0].schedule.method.counts_vary:
            if self.place.eval_images is None:
                return {}
            gmacs = mean_macs(vit.spec, self._left(made[0], way)).gmacs
        saved = 100 * (1 - gmacs / whole) if way.prunes else None
        return {"GFLOPs": gmacs, "FLOPs saved, %": saved}

    def _speed(self, vit: PrunableViT, way: Way) -> Numbers:
        """Time PyTorch in fp32, the unpruned and the pruned model in turns."""
        made, batch = self._pruned(vit, way), min(way.batch, self.place.most_batch)
        if made is None:
            return {}
        runners = {"dense": reference_runner(steps.dense(vit))}
        if way.prunes:
            runners["pruned"] = reference_runner(made[0])
        feed = {IMAGES: noise(vit.spec, "float32", batch)}
        times = throughput(runners, feed, batch=batch, rounds=self.place.rounds)
        if not way.prunes:
            return {"img/s": times["dense"].images_per_s}
        ratio = times["pruned"].images_per_s / times["dense"].images_per_s
        return {"img/s": times["pruned"].images_per_s, "speed-up, %": 100 * (ratio - 1)}

    def _acs_time(self, vit: PrunableViT, way: Way) -> Numbers:
        if self._train is None:
            return {}
        start = time.perf_counter()
        calibrate(vit, self._train, self._settings(way, relevance=False))
        return {"ACS, s": time.perf_counter() - start}
