"""Say what a compilation would do, without doing it: its steps, multiply-adds and files, and about how long."""

from dataclasses import dataclass
from pathlib import Path

from exporter.data.images import ImageFolder, sample
from exporter.data.source import images_at
from exporter.depth.checkpoint import describe
from exporter.evaluation.benchmark.timing import WARMUP_ROUNDS
from exporter.files import PathLike, writable_folder
from exporter.models.base import PrunableViT
from exporter.records import ModelSpec, Schedule
from exporter.schedule.macs import dense_macs, schedule_macs
from exporter.targets import variant_roles
from exporter.tensor_names import RAW_IMAGES, variant_path
from exporter.vocabulary import Method
from exporter.workflows import steps
from exporter.workflows.compiling.schedule import checked_amount
from exporter.workflows.compiling.work import Work, guessed_s, speed_here
from exporter.workflows.folders.checksums import CHECKSUMS
from exporter.workflows.folders.export_folder import (
    CALIBRATION,
    CHART,
    MODEL,
    PAGE,
    RECIPE,
    REFERENCE,
    REPORT,
    SCHEDULE,
)
from exporter.workflows.recipes.amount import MacShare, Speedup
from exporter.workflows.recipes.job import Job
from exporter.workflows.recipes.planning import Planner, plan
from exporter.workflows.recipes.recipe import Recipe, needed
from exporter.workflows.recipes.resolve import resolve

__all__ = ["Preview", "preview"]

# With max_images "auto": the most images that a calibration reads.
AUTO = 2048
RELEVANCE_PASSES = 3.7


@dataclass(frozen=True)
class Preview:
    """What a compilation would do.

    `gmacs_pruned` is None where it follows from a calibration or from measurements that are still to be made;
    `unknown` says from which. `files` are those it would write, `replaced` those of them that exist.
    `minutes` is a guess, from and to: see `exporter.workflows.compiling.work`.
    """

    model: str
    method: str
    target: str
    gmacs_dense: float
    gmacs_pruned: float | None
    unknown: str
    steps: tuple[Work, ...]
    files: tuple[str, ...]
    replaced: tuple[str, ...]
    minutes: tuple[float, float]


def preview(recipe: Recipe, out: PathLike) -> Preview:
    """Return what `compile` would do with a recipe; no step is run, and nothing is written.

    Raises:
        UserError: What `compile` would refuse before its first step, or because of the model's shape.
    """
    job, place = resolve(recipe), Path(out)
    amount = checked_amount(job)
    writable_folder(place)
    job.check_named()
    vit = describe(job.model)
    chosen, _ = steps.with_outputs(vit, job.outputs)
    spec = chosen.spec
    folder = None if job.on_noise else steps.eval_images(job.images, spec)
    unknown = _unknown(job)
    schedule = None if unknown else plan(amount, _planner(job, vit, spec))
    work = _work(job, spec, schedule, folder)
    files = _files(job, spec)
    low, high = guessed_s(work, speed_here())
    return Preview(
        model=spec.name,
        method=str(job.scoring.planned_by),
        target=job.lowering.target.name,
        gmacs_dense=dense_macs(spec).gmacs,
        gmacs_pruned=schedule_macs(spec, schedule).gmacs if schedule else _asked_gmacs(job, spec),
        unknown=unknown,
        steps=work,
        files=files,
        replaced=tuple(name for name in files if (place / name).exists()),
        minutes=(low / 60, high / 60),
    )


def _unknown(job: Job) -> str:
    """Return what the schedule still depends on, "" if on nothing."""
    if isinstance(job.amount, Speedup):
        return "measurements on this machine"
    if isinstance(job.amount, MacShare) and job.scoring.planned_by.counts_vary:
        return "the images"
    if job.follows_acs and not job.calibration.exists:
        return "the calibration"
    return ""


def _asked_gmacs(job: Job, spec: ModelSpec) -> float | None:
    """Return the multiply-adds that a share asks for, None without one."""
    if not isinstance(job.amount, MacShare):
        return None
    return (1 - job.amount.mac_reduction) * dense_macs(spec).gmacs


def _planner(job: Job, vit: PrunableViT, spec: ModelSpec) -> Planner:
    calibration = steps.read_calibration(job.calibration, vit.spec)
    calibration = None if calibration is None else calibration.of_first(spec.depth)
    return Planner.of(spec, job.scoring, calibration, job.shape)


def _work(
    job: Job, spec: ModelSpec, schedule: Schedule | None, folder: ImageFolder | None
) -> tuple[Work, ...]:
    """Return the steps, with the multiply-adds of each."""
    dense = dense_macs(spec).total
    pruned = schedule_macs(spec, schedule).total if schedule else dense
    both, measuring, checked = dense + pruned, job.measuring, job.images.check_images
    checked = checked if folder is None else min(checked, len(folder.files))
    work = [Work("model", 0, 0.0)]
    if job.reads_calibration and not job.calibration.exists:
        work.append(_calibration(job, spec))
    if isinstance(job.amount, Speedup):
        rounds = job.amount.measurements * (measuring.rounds + WARMUP_ROUNDS) * measuring.batch
        work.append(Work("search for rho", rounds, float(rounds * both), lowered=job.amount.measurements + 1))
    work.append(Work("lowering", 0, 0.0, lowered=2))
    # PyTorch, and the shipped model with its two instrumented variants.
    work.append(Work("parity", checked, float(checked * (2 * dense + 4 * pruned))))
    if folder is not None and ((folder.labelled and spec.num_classes) or spec.embedding):
        work.append(Work("accuracy", len(folder.files), float(len(folder.files) * both)))
    if measuring.rounds:
        runs = (measuring.rounds + WARMUP_ROUNDS) * measuring.batch
        work.append(Work("throughput", runs, float(runs * both)))
        if job.sweep:
            swept = runs * (len(job.sweep) + 1)
            work.append(Work("sweep", swept, float(swept * dense), lowered=len(job.sweep)))
    return (*work, Work("report", checked, float(checked * both)))


def _calibration(job: Job, spec: ModelSpec) -> Work:
    """Return the work of a calibration; see docs/calibration.md for its cost in forward passes."""
    settings, place = job.calibration.settings, needed(job.images.images, "--images", "a folder of images")
    wanted = AUTO if settings.max_images == "auto" else settings.max_images
    images = len(sample(images_at(place), wanted, job.images.seed).files)
    passes = 1.0
    if settings.relevance:
        # Of each image and class, in its own dtype; float64 takes twice as long.
        classes = settings.classes_of(max(1, spec.num_classes), spec.name)
        passes += RELEVANCE_PASSES * classes * (2 if settings.dtype == "float64" else 1)
    return Work("calibration", images, images * passes * dense_macs(spec).total)


def _files(job: Job, spec: ModelSpec) -> tuple[str, ...]:
    """Return the names of the files, sorted."""
    target, method = job.lowering.target, str(job.scoring.planned_by)
    dense, pruned = (target.file_name(spec.name, each) for each in ("dense", method))
    roles = variant_roles(target, adaptive=job.scoring.planned_by is Method.A_STAR)
    found = {dense, pruned, *(variant_path(Path(pruned), role).name for role in roles)}
    found |= {REFERENCE, SCHEDULE, MODEL, REPORT, CHECKSUMS, RECIPE, PAGE}
    found |= {RAW_IMAGES.format(batch=batch) for batch in (1, job.measuring.batch)}
    if job.reads_calibration and not job.calibration.exists:
        found.add(CALIBRATION)
    return tuple(sorted({*found, CHART} if job.sweep else found))
