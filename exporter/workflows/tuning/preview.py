"""Say what a search would do, as far as its settings tell: most of its steps follow from its measurements."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from exporter.data.images import ImageFolder
from exporter.depth.checkpoint import describe
from exporter.files import PathLike, writable_folder
from exporter.models.base import PrunableViT
from exporter.records import ModelSpec
from exporter.schedule.macs import dense_macs
from exporter.targets import ONNXRUNTIME, Target
from exporter.workflows.previewing.expected import Expected, asked_gmacs
from exporter.workflows.previewing.record import Preview, preview_of
from exporter.workflows.previewing.work import Work, calibration_work
from exporter.workflows.recipes.amount import Given
from exporter.workflows.recipes.job import Job
from exporter.workflows.recipes.recipe import Recipe
from exporter.workflows.tuning.accuracy import FIRST
from exporter.workflows.tuning.axes import OWN
from exporter.workflows.tuning.budget import COMPILED_IMAGES, COMPILED_MODELS
from exporter.workflows.tuning.inputs import amount_of, candidates_of, halves_of, targets_here
from exporter.workflows.tuning.jobs import jobs_of
from exporter.workflows.tuning.networks import Network, calibration_path
from exporter.workflows.tuning.result import CHART, COMPILED, FRONT, RECIPE
from exporter.workflows.tuning.settings import TuneSettings

__all__ = ["preview_search"]


def preview_search(
    recipe: Recipe,
    settings: TuneSettings,
    out: PathLike,
    *,
    weights: Sequence[PathLike] = (),
    compiled: PathLike | None = None,
) -> Preview:
    """Return what `tune` would do; no image is read, and nothing is written. The arguments are `tune`'s.

    The guess of the time ends at the limit that the settings set, unless the steps that are certain take longer.

    Raises:
        UserError: What `tune` would refuse before its first measurement, or because of the model's shape.
    """
    place = writable_folder(Path(out))
    jobs, targets = jobs_of(recipe, [Path(each) for each in weights]), targets_here(settings)
    job = jobs[OWN]
    amount_of(job)
    job.check_named()
    vits = {name: describe(each.model) for name, each in jobs.items()}
    search, final = halves_of(job.images, vits[OWN], settings)
    measured = {name: each for name, each in jobs.items() if _is_calibrated(each)}
    work = (
        Work("model", 0, 0.0),
        *(calibration_work(each, vits[name].spec, relevance=True) for name, each in measured.items()),
        *_work(job, vits[OWN].spec, search, final, targets=targets, count=_candidates(jobs, vits)),
    )
    written = (RECIPE, FRONT, CHART)
    calibrations = (calibration_path(place, name).name for name in measured)
    expected = Expected(None, asked_gmacs(job, vits[OWN].spec), "the search")
    found = preview_of(vits[OWN].spec, work, place, written, expected=expected)
    low, limit = found.minutes[0], float(settings.minutes)
    files = (*written, *calibrations, "measurements/", f"{compiled or COMPILED}/")
    return replace(found, files=files, minutes=(low, max(low, limit)))


def _is_calibrated(job: Job) -> bool:
    """Whether a network is calibrated for the search: on its images, unless it brings what prunes it."""
    return job.images.images is not None and not (isinstance(job.amount, Given) or job.calibration.exists)


def _candidates(jobs: Mapping[str, Job], vits: Mapping[str, PrunableViT]) -> int:
    """Return the number of candidates, without those that need a calibration which there will not be."""
    networks = {
        name: Network(vits[name], given=job.amount.schedule if isinstance(job.amount, Given) else None)
        for name, job in jobs.items()
    }
    every = candidates_of(jobs[OWN], networks)
    scored = {name for name, job in jobs.items() if _is_calibrated(job) or job.calibration.exists}
    return sum(each.given or each.weights in scored or not each.calibrated for each in every)


def _work(
    job: Job,
    spec: ModelSpec,
    search: ImageFolder,
    final: ImageFolder,
    *,
    targets: Sequence[Target],
    count: int,
) -> Iterator[Work]:
    """Yield the steps after calibration; how many runs the candidates take depends on what is measured."""
    dense = dense_macs(spec).total
    first, models = min(FIRST, len(search.files)), len({*targets, ONNXRUNTIME})
    yield Work("unpruned model, first images", first, float(first * dense), lowered=models)
    yield Work(f"up to {count} candidates, within the time limit", 0, 0.0)
    yield Work("the choice, on the final half", len(final.files), float(2 * len(final.files) * dense))
    shown = min(COMPILED_IMAGES, job.images.max_eval_images, len(search.files) + len(final.files))
    yield Work("compilation of the choice", shown, float(2 * shown * dense), lowered=COMPILED_MODELS)
