"""Say what a compilation would do, without doing it: its steps, multiply-adds and files, and about how long."""

from pathlib import Path

from exporter.data.images import ImageFolder
from exporter.depth.checkpoint import describe
from exporter.evaluation.benchmark.timing import WARMUP_ROUNDS
from exporter.files import PathLike, writable_folder
from exporter.records import ModelSpec
from exporter.schedule.macs import dense_macs
from exporter.targets import variant_roles
from exporter.tensor_names import RAW_IMAGES, variant_path
from exporter.vocabulary import Method
from exporter.workflows import steps
from exporter.workflows.compiling.schedule import checked_amount
from exporter.workflows.folders.checksums import CHECKSUMS
from exporter.workflows.folders.export_folder import CALIBRATION, CHART, MODEL, PAGE, RECIPE, REPORT, SCHEDULE
from exporter.workflows.folders.reference import REFERENCE
from exporter.workflows.previewing.expected import Expected, expected_of
from exporter.workflows.previewing.record import Preview, preview_of
from exporter.workflows.previewing.work import Work, calibration_work, search_work
from exporter.workflows.recipes.amount import Speedup
from exporter.workflows.recipes.job import Job
from exporter.workflows.recipes.recipe import Recipe
from exporter.workflows.recipes.resolve import resolve

__all__ = ["preview"]


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
    expected = expected_of(job, amount, vit, spec)
    return preview_of(
        spec,
        _work(job, spec, expected, folder),
        place,
        _files(job, spec),
        method=str(job.scoring.planned_by),
        target=job.lowering.target.name,
        expected=expected,
    )


def _work(job: Job, spec: ModelSpec, expected: Expected, folder: ImageFolder | None) -> tuple[Work, ...]:
    """Return the steps, with the multiply-adds of each."""
    dense, pruned = dense_macs(spec).total, expected.macs(spec)
    both, measuring, checked = dense + pruned, job.measuring, job.images.check_images
    checked = checked if folder is None else min(checked, len(folder.files))
    work = [Work("model", 0, 0.0)]
    if job.reads_calibration and not job.calibration.exists:
        work.append(calibration_work(job, spec))
    if isinstance(job.amount, Speedup):
        work.append(search_work(job, job.amount, both))
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
