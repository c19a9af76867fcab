"""The networks of a search: the model, and checkpoints of it that may lack layers or were trained to be pruned."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import nn

from exporter.calibration.record import Calibration, load_calibration
from exporter.data.images import listing_sha256
from exporter.data.source import images_at
from exporter.errors import ModelError
from exporter.formats.canonical_json import to_json
from exporter.models.base import PrunableViT
from exporter.records import Schedule
from exporter.workflows import steps
from exporter.workflows.progress import Stages
from exporter.workflows.recipes.amount import Given
from exporter.workflows.recipes.job import Job
from exporter.workflows.tuning.axes import OWN, SCORING, Candidate
from exporter.workflows.tuning.ledger import Ledger

__all__ = [
    "Network",
    "calibrated",
    "calibration_path",
    "calibration_skipped",
    "load_vits",
    "measurement",
]


@dataclass(frozen=True, eq=False)
class Network:
    """A ViT with its calibration, the files of both, and the schedule that it is pruned by.

    `given` is None where any candidate may prune it, as it may weights that were not trained to be pruned.
    """

    vit: PrunableViT
    checkpoint: Path | None = None
    calibration: Calibration | None = None
    calibration_file: Path | None = None
    given: Schedule | None = None

    @cached_property
    def digest(self) -> str:
        """Identifies what is computed with it."""
        record = None if self.calibration is None else self.calibration.record
        told = to_json({"weights": self.vit.weights_sha256, "calibration": record, "given": self.given})
        return hashlib.sha256(told.encode()).hexdigest()

    def candidate(self, weights: str) -> Candidate | None:
        """Return the one way in which it is pruned if that is given; None if any way will do."""
        if self.given is None:
            return None
        return Candidate(weights=weights, given=True, **{name: getattr(self.given, name) for name in SCORING})


def measurement(what: str, candidate: Candidate, networks: Mapping[str, Network]) -> str:
    """Return the name of a measurement of a candidate: it says all that the measurement depends on."""
    return f"{what}, {to_json(candidate)}, {networks[candidate.weights].digest}"


def load_vits(
    jobs: Mapping[str, Job], stages: Stages, model: PrunableViT | nn.Module | None = None
) -> Mapping[str, PrunableViT]:
    """Load the networks of jobs: of the model, under `OWN`, and of its other checkpoints, by name.

    Args:
        jobs: By name, that of the model first.
        stages: Shows progress.
        model: The model itself, where its job does not name it.

    Raises:
        ModelError: A checkpoint has other classes than the model, or gives every image the same answer.
    """
    found: dict[str, PrunableViT] = {}
    for name, job in jobs.items():
        with stages.stage(f"model {job.model.name}"):
            found[name] = steps.load_model(job.model, job.device, model if name == OWN else None)
        classes, expected = (found[each].spec.num_classes for each in (name, OWN))
        if classes != expected:
            raise ModelError(str(job.model.checkpoint), f"{classes} classes", f"{expected}, as the model has")
    return found


def calibrated(
    jobs: Mapping[str, Job], vits: Mapping[str, PrunableViT], place: Path, ledger: Ledger, stages: Stages
) -> Mapping[str, Network]:
    """Calibrate each network on the images of its job if it has any, once: the time of it counts as measured.

    Args:
        jobs: Of the model, under `OWN`, and of its other checkpoints, by name.
        vits: Their networks.
        place: The folder for calibrations.
        ledger: Of the search.
        stages: Shows progress.
    """
    return {
        name: _network(job, vits[name], calibration_path(place, name), ledger, stages)
        for name, job in jobs.items()
    }


def calibration_skipped(networks: Mapping[str, Network]) -> dict[str, str]:
    """Return the reasons of the images that could not be read in the calibrations of a search, by name."""
    made = (network.calibration for network in networks.values() if network.calibration is not None)
    every = {name: reason for calibration in made for name, reason in calibration.skipped.items()}
    return dict(sorted(every.items()))


def calibration_path(place: Path, name: str) -> Path:
    """Return the file of a network's calibration in the folder of a search."""
    return place / f"{name or 'model'}.calibration.safetensors"


def _network(job: Job, vit: PrunableViT, path: Path, ledger: Ledger, stages: Stages) -> Network:
    """Calibrate one network; without images to calibrate on it has no calibration but one of its own."""
    file, source = job.model.checkpoint, job.calibration
    if isinstance(job.amount, Given):
        return Network(vit, file, source.restored, None, job.amount.schedule)
    if source.exists:
        return Network(vit, file, steps.read_calibration(source, vit.spec, vit.weights_sha256), source.path)
    if job.images.images is None:
        return Network(vit, file)
    # With the scores of every candidate, whatever the job's own method needs.
    whole = replace(source, settings=replace(source.settings, relevance=True))
    with stages.stage("calibration") as advance:

        def calibrate() -> dict[str, Any]:
            done = steps.calibrate(vit, whole, job.images, path, advance)
            return {"inter_sha256": done.inter_sha256, "skipped": dict(done.skipped)}

        images = listing_sha256(images_at(job.images.images))
        name = f"calibration and what it skipped, {images}, {to_json(whole.settings)}, {vit.weights_sha256}"
        made = ledger.record(name, calibrate, together=True)
        if not path.exists() or load_calibration(path).inter_sha256 != made["inter_sha256"]:
            calibrate()
    # The file has their number alone.
    return Network(vit, file, replace(load_calibration(path), skipped=made["skipped"]), path)
