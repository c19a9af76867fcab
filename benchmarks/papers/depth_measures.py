"""Measure what the tables of BoundaryDPT show of the samples of `depth choose`, and what it rests on.

How far the chosen split depends on noise in the measured accuracies: a Monte-Carlo report (MAP, section 5).
Attention's gates get smaller gradients, and its loss is won back more slowly.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from place import Missing, kept, needed
from prepared import Prepared
from torch.nn.functional import cross_entropy

from exporter.core.base.canonical_json import read_json, save_json
from exporter.core.base.errors import DepthError
from exporter.core.base.vocabulary import UnitType
from exporter.data.batches import first_images
from exporter.data.images import sample
from exporter.data.source import images_at
from exporter.depth.collect import Measured, read_samples
from exporter.depth.gates import Importance, gated, removable
from exporter.depth.plan import ChoiceSettings, DepthPlan
from exporter.depth.predictor import (
    CrossValidation,
    Sample,
    Split,
    accuracies_of,
    best_split,
    fit,
    fit_best,
    splits,
)
from exporter.jobs.depth import collect_to
from exporter.jobs.opened import open_recipe
from exporter.jobs.recipe import Images, Recipe
from exporter.models.registry import trainable

# The columns of a split with noise.
NOISY = (
    "same split, %",
    "one layer off, %",
    "further, %",
    "attention kept, mean",
    "attention kept, std",
    "one layer off, points",
)
# The columns of what a collection costs.
COST = ("samples, h", "fit, s", "samples, MB")
SECONDS = "seconds.json"
SAMPLES = "samples.json"
# Images of a collection's trainings (rebuttal, 4wzp, Q10).
TRAINED_ON = 100_000


def collected(row: Prepared) -> dict[str, float | None]:
    """Return the top-1 of a sample in percent; None where the collection does not have it."""
    for measured in _samples(row):
        if (
            len(measured.plan.attention),
            len(measured.plan.activation),
        ) == row.way.collected:
            return {"accuracy": measured.accuracy}
    return {"accuracy": None}


def noise_of_samples(row: Prepared) -> dict[str, float | None]:
    """Split units by type on samples with noise: shares of trials in percent, mean and deviation of the kept."""
    samples, depth = _samples(row), row.vit.spec.depth
    try:
        result = robustness(samples, depth, row.way.split_units)
    except DepthError:
        raise Missing from None
    shares = (100 * result.same, 100 * result.one_off, 100 * result.further)
    kept_attention = (1 - result.mean_attention / depth, result.std_attention / depth)
    return dict(zip(NOISY, (*shares, *kept_attention, result.most_lost), strict=True))


def cost_of_samples(row: Prepared) -> dict[str, float | None]:
    """Return the hours of the collection, the seconds of its fit, and the megabytes of its samples on disk."""
    folder = _collection(row)
    samples = read_samples(folder / SAMPLES)
    start = time.perf_counter()
    try:
        fit_best(samples)
    except DepthError:
        raise Missing from None
    fitted = time.perf_counter() - start
    hours = read_json(folder / SECONDS) / 3600
    return dict(
        zip(COST, (hours, fitted, (folder / SAMPLES).stat().st_size / 1e6), strict=True)
    )


def _samples(row: Prepared) -> tuple[Measured, ...]:
    return read_samples(_collection(row) / SAMPLES)


def _collection(row: Prepared) -> Path:
    place = row.place
    settings = ChoiceSettings(units=row.place.most_units)
    tuning = row.tuning_settings
    assert tuning is not None
    images = Images(
        images=needed(place.images),
        eval_images=needed(place.eval_images),
        max_eval_images=place.max_eval_images or 1000,
    )
    recipe = Recipe(model=replace(row.request, device=place.device), images=images)
    record = {
        "weights": row.vit.weights_sha256,
        "units": settings,
        "tuning": tuning,
        "images": place.digests,
        "trained_on": TRAINED_ON,
        "preprocessing": row.vit.spec.preprocessing,
    }

    def collect(path: Path) -> None:
        # A collection that was killed goes on; its seconds are then those of its last run.
        unfinished, start = path.with_suffix(".unfinished"), time.perf_counter()
        most = replace(tuning, max_train_images=TRAINED_ON)
        collect_to(open_recipe(recipe).network, settings, most, unfinished)
        save_json(time.perf_counter() - start, unfinished / SECONDS)
        unfinished.rename(path)

    return kept(place.out, record, "", collect)


Array = np.ndarray[Any, Any]

# The standard deviation of the noise in points, and the most that is added, in deviations.
DEVIATION, MOST = 0.1, 5


@dataclass(frozen=True)
class Robustness:
    """The split without noise, and the shares of trials that find it, one layer less or more attention, or others.

    `mean_attention` and `std_attention` are in layers. `most_lost` is what a split with one attention layer less or
    more loses at most, in points, as the samples without noise predict it.
    """

    split: Split
    same: float
    one_off: float
    further: float
    mean_attention: float
    std_attention: float
    most_lost: float


def robustness(
    samples: Sequence[Sample],
    depth: int,
    units: int,
    *,
    trials: int = 500,
    seed: int = 0,
) -> Robustness:
    """Add clip(N(0, σ), ±5σ) to every accuracy, choose degree and split again, and compare.

    `depth` is L, the model's blocks; `units` K, the number of units removed. DepthError for too few samples, or
    a budget that is not in 0 to 2L.
    """
    folds, accuracies = CrossValidation(samples), accuracies_of(samples)

    def chosen(noise: Array) -> Split:
        noisy = [
            replace(sample, accuracy=float(value))
            for sample, value in zip(samples, accuracies + noise, strict=True)
        ]
        return best_split(fit(noisy, folds.best(accuracies + noise)), depth, units)

    predictor = fit(samples, folds.best(accuracies))
    split = best_split(predictor, depth, units)
    near = [
        other.accuracy
        for other in splits(predictor, depth, units)
        if abs(other.attention - split.attention) == 1
    ]
    draws = np.random.default_rng(seed).normal(0, 1, (trials, len(samples)))
    noises = DEVIATION * draws.clip(-MOST, MOST)
    counts = np.array([chosen(noise).attention for noise in noises])
    off = np.abs(counts - split.attention)
    return Robustness(
        split=split,
        same=float(np.mean(off == 0)),
        one_off=float(np.mean(off == 1)),
        further=float(np.mean(off > 1)),
        mean_attention=float(counts.mean()),
        std_attention=float(counts.std()),
        most_lost=split.accuracy - min(near),
    )


GAP = "gradient, activation ÷ attention"
# Training images whose gradients are measured.
MEASURED_IMAGES = 256


def gradient_gap(row: Prepared) -> dict[str, float | None]:
    """Return how many times larger the gradients of the activations' gates are than those of attention's.

    Each is the root mean square over all layers that can lose the unit and over batches of training images, of the
    cross entropy with the label, before any training (`exporter.depth.gates`).
    """
    vit = row.vit
    if row.way.each is not None:
        raise Missing  # that row is of training
    folder = sample(
        images_at(needed(row.place.images), vit.spec.num_classes), MEASURED_IMAGES, 0
    )
    labels = torch.tensor([file.label for file in folder.files], device=vit.device)
    pixels = first_images(
        folder.files, vit.spec.preprocessing, "float32", MEASURED_IMAGES
    )
    squares = dict.fromkeys(UnitType, 0.0)
    layers = {
        unit: [layer - 1 for layer in places] for unit, places in removable(vit).items()
    }
    with trainable(vit), gated(vit, Importance.unknown(vit.spec.depth)) as student:
        for at in range(0, len(labels), row.batch):
            student.zero_grad()
            images = torch.from_numpy(pixels[at : at + row.batch]).to(vit.device)
            cross_entropy(student(images), labels[at : at + row.batch]).backward()
            for unit, scores in (
                (UnitType.ATTENTION, student.attention),
                (UnitType.ACTIVATION, student.activation),
            ):
                assert scores.grad is not None
                squares[unit] += float(
                    scores.grad[layers[unit]].double().square().mean()
                )
        student.zero_grad()
    return {GAP: (squares[UnitType.ACTIVATION] / squares[UnitType.ATTENTION]) ** 0.5}


def plans_of_one_unit(row: Prepared) -> list[Prepared]:
    """Return the row without each layer's unit of the way's type in turn."""
    unit = row.way.each
    if unit is None:
        raise Missing
    plans = [DepthPlan().also(unit, [layer]) for layer in removable(row.vit)[unit]]
    return [replace(row, way=replace(row.way, depth=plan, each=None)) for plan in plans]
