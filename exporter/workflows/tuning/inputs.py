"""What a search chooses from, checked before it begins: targets, candidates, and both halves of the images."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from exporter.data.batches import first_images
from exporter.data.images import ImageFolder, listing_sha256, sample
from exporter.data.source import class_mismatch, images_at
from exporter.errors import ImageError, RecipeError
from exporter.formats.canonical_json import to_json
from exporter.models.base import PrunableViT
from exporter.records import ModelSpec
from exporter.runtimes.choice import why_not
from exporter.schedule.methods import METHODS
from exporter.targets import TARGETS, Target
from exporter.training.checkpoint import versions
from exporter.vocabulary import InputKind
from exporter.workflows.progress import Stages
from exporter.workflows.recipes.amount import MacShare, Rho
from exporter.workflows.recipes.job import Job
from exporter.workflows.recipes.recipe import needed
from exporter.workflows.recipes.requests import Images
from exporter.workflows.tuning.axes import OWN, Candidate, candidates, pinned, suited
from exporter.workflows.tuning.bench import Bench
from exporter.workflows.tuning.choice import images_needed
from exporter.workflows.tuning.halves import halves
from exporter.workflows.tuning.ledger import Ledger
from exporter.workflows.tuning.networks import Network
from exporter.workflows.tuning.settings import TuneSettings

__all__ = [
    "amount_of",
    "candidates_of",
    "halves_of",
    "ledger_of",
    "require_classes",
    "targets_here",
    "timing_images",
    "within_reach",
]

Array = np.ndarray[Any, Any]


def amount_of(job: Job) -> Rho | MacShare | None:
    """Return the amount that a job pins.

    Raises:
        RecipeError: It has an amount for each layer, or a speed-up; or rounds are 0.
    """
    needed(job.measuring.rounds or None, "--rounds", "at least 5: speeds are measured")
    if job.shape is None and (job.amount is None or isinstance(job.amount, Rho | MacShare)):
        return job.amount
    hint = "--weights FILE tries a fine-tuned checkpoint as it was trained"
    expected = "rho, mac_reduction, or no amount: it is searched for"
    raise RecipeError("tune", "rates or a speed-up", expected, hint)


def targets_here(settings: TuneSettings) -> tuple[Target, ...]:
    """Return the targets that run here, of one runtime if it is named.

    Raises:
        RecipeError: None of those that are asked for runs here.
    """
    named = [
        each
        for each in TARGETS.values()
        if settings.runtime in (None, each.runtime) and settings.target in (None, each.name)
    ]
    reasons = {each.name: why_not(each) for each in named}
    here = tuple(each for each in named if not reasons[each.name])
    if not here:
        got = next(iter(reasons.values()), "a runtime without this target")
        asked = settings.target or settings.runtime
        raise RecipeError("target" if settings.target else "runtime", f"{asked}: {got}", "one that runs here")
    return here


def candidates_of(job: Job, networks: Mapping[str, Network]) -> tuple[Candidate, ...]:
    """Return the candidates: one value of every axis that the job pins, all values of the others.

    Raises:
        RecipeError: The values that are pinned do not go together.
    """
    weights = tuple(name for name in networks if name != OWN)
    given = [network.candidate(name) for name, network in networks.items()]
    axes = suited(pinned(job.scoring, amount_of(job), weights), networks[OWN].vit.spec)
    found = candidates(axes, [each for each in given if each is not None])
    if not found:
        choices = "; ".join(f"{name}: {', '.join(each.scorers)}" for name, each in METHODS.items())
        raise RecipeError("tune", "settings that do not go together", f"scores by method: {choices}")
    return found


def within_reach(bench: Bench, every: Sequence[Candidate], stages: Stages) -> list[Candidate]:
    """Return the candidates that have a schedule.

    Raises:
        RecipeError: None has.
    """
    found: list[Candidate] = []
    with stages.stage("schedules") as advance:
        for done, each in enumerate(every):
            if bench.schedule(each) is not None:
                found.append(each)
            advance(done + 1, len(every))
    if not found:
        expected = "a smaller amount, or --images where scores or rates need a calibration"
        raise RecipeError("tune", "no candidate that can be pruned so", expected)
    return found


def require_classes(spec: ModelSpec) -> None:
    """Refuse a model without logits: losses are those of images whose class is right, or the unpruned model's.

    Raises:
        RecipeError: It has none.
    """
    if not spec.num_classes:
        hint = "--text-embeddings FILE makes a tower one; compile --rho R says how its embeddings agree"
        raise RecipeError(spec.name, "a model without logits, which has no top-1", "a classifier", hint)


def halves_of(images: Images, vit: PrunableViT, settings: TuneSettings) -> tuple[ImageFolder, ImageFolder]:
    """Split the evaluation images into the search half and the final half.

    Raises:
        RecipeError: There are no --eval-images, or the model has no classes.
        ImageError: There are too few, or labels are missing.
    """
    require_classes(vit.spec)
    expected = "images to measure on, which calibration does not see"
    place = needed(images.eval_images, "--eval-images", expected)
    labelled = settings.metric == "top1"
    classes, names = vit.spec.num_classes, vit.spec.class_names
    found = images_at(place, classes, images.class_map, names=names, labels=labelled)
    if labelled and not found.labelled:
        hint = "--metric agreement needs none"
        got = class_mismatch(found, classes) or "images without classes"
        raise ImageError(str(place), got, f"one folder of images for each of {classes} classes", hint)
    search, final = halves(sample(found, images.max_eval_images, images.seed), images.seed)
    if not search.files or not final.files:
        raise ImageError(str(place), f"{len(found.files)} images", "at least 2 for each class")
    if settings.confident and settings.max_drop is not None:
        enough = images_needed({"lost": 0.0, "gained": 0.0}, settings.max_drop)
        if len(final.files) < enough:
            got = f"{len(final.files)} images in the final half"
            raise ImageError("confident", got, f"at least {enough}", f"for {settings.max_drop:g} points")
    return search, final


def timing_images(images: Images, spec: ModelSpec, batch: int) -> Array:
    """Return calibration images to time on, or evaluation images where there are none."""
    place = images.images or images.eval_images
    assert place is not None
    files = sample(images_at(place), batch, images.seed).files
    return first_images(files, spec.preprocessing, InputKind.FLOAT32, batch)


def ledger_of(place: Path, job: Job, search: ImageFolder, final: ImageFolder) -> Ledger:
    """Return the measurements below a folder that are of these images, of such timing and of these versions."""
    listings = [listing_sha256(each) for each in (search, final)]
    told = {"images": listings, "how": to_json(job.measuring), "versions": versions()}
    return Ledger(place / "measurements", to_json(told))
