"""Measure what the samples of `depth choose` give: the accuracy of one, and a split of units with noise."""

import time
from dataclasses import replace
from pathlib import Path

from kept import kept
from place import Missing, needed
from prepared import Prepared
from robustness import robustness

from exporter.depth.collect import Measured, SampleBook
from exporter.depth.plan import CollectSettings
from exporter.depth.predictor import fit_best
from exporter.errors import DepthError
from exporter.formats.canonical_json import read_json, save_json
from exporter.workflows.depth.training import collect_to
from exporter.workflows.opened import open_recipe
from exporter.workflows.recipe import Recipe

__all__ = ["COST", "NOISY", "collected", "cost_of_samples", "noise_of_samples"]

# The columns of a split with noise.
NOISY = (
    *("same split, %", "one layer off, %", "further, %", "attention kept, mean", "attention kept, std"),
    "one layer off, points",
)
# The columns of what a collection costs.
COST = ("samples, h", "fit, s", "samples, MB")
SECONDS = "seconds.json"
# Images of a collection's trainings (rebuttal, 4wzp, Q10).
TRAINED_ON = 100_000


def collected(row: Prepared) -> dict[str, float | None]:
    """Return the top-1 of a sample in percent; None where the collection does not have it."""
    for each in _samples(row):
        if (len(each.plan.attention), len(each.plan.activation)) == row.way.collected:
            return {"accuracy": each.accuracy}
    return {"accuracy": None}


def noise_of_samples(row: Prepared) -> dict[str, float | None]:
    """Split units by type on samples with noise: shares of trials in percent, mean and deviation of what is kept.

    Raises:
        Missing: The samples are too few for a split.
    """
    samples, depth = [each.sample for each in _samples(row)], row.vit.spec.depth
    try:
        found = robustness(samples, depth, row.way.split_units)
    except DepthError:
        raise Missing from None
    shares = (100 * found.same, 100 * found.one_off, 100 * found.further)
    kept_attention = (1 - found.mean_attention / depth, found.std_attention / depth)
    return dict(zip(NOISY, (*shares, *kept_attention, found.most_lost), strict=True))


def cost_of_samples(row: Prepared) -> dict[str, float | None]:
    """Return the hours of the collection, the seconds of its fit, and the megabytes of its samples on disk.

    Raises:
        Missing: The samples are too few for a fit.
    """
    folder = _collection(row)
    samples = [each.sample for each in SampleBook(folder).samples()]
    start = time.perf_counter()
    try:
        fit_best(samples)
    except DepthError:
        raise Missing from None
    fitted = time.perf_counter() - start
    hours = read_json(folder / SECONDS) / 3600
    return dict(zip(COST, (hours, fitted, SampleBook(folder).path.stat().st_size / 1e6), strict=True))


def _samples(row: Prepared) -> tuple[Measured, ...]:
    return SampleBook(_collection(row)).samples()


def _collection(row: Prepared) -> Path:
    """Return the folder of the collection, which is made once."""
    place, settings, tuning = row.place, CollectSettings(units=row.place.most_units), row.tuning_settings
    assert tuning is not None
    recipe = Recipe.of(
        model=row.request.name,
        checkpoint=row.request.checkpoint,
        model_kwargs=dict(row.request.model_kwargs),
        preprocess=dict(row.request.preprocess),
        images=needed(place.images),
        eval_images=needed(place.eval_images),
        max_eval_images=place.max_eval_images or 1000,
        device=place.device,
    )
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
        collect_to(open_recipe(recipe), settings, most, unfinished)
        save_json(time.perf_counter() - start, unfinished / SECONDS)
        unfinished.rename(path)

    return kept(place.out, record, "", collect)
