"""Say what fine-tuning would do, without doing it."""

from pathlib import Path

from exporter.depth.checkpoint import describe
from exporter.errors import CheckpointError
from exporter.files import PathLike
from exporter.records import ModelSpec
from exporter.schedule.macs import dense_macs
from exporter.training.settings import FinetuneSettings
from exporter.workflows import steps
from exporter.workflows.finetuning.finetune import checked_amount, output_file
from exporter.workflows.finetuning.images import Exam, train_images
from exporter.workflows.previewing.expected import Expected, expected_of
from exporter.workflows.previewing.record import Preview, preview_of
from exporter.workflows.previewing.work import Work, calibration_work, search_work
from exporter.workflows.progress import Silent
from exporter.workflows.recipes.amount import Speedup
from exporter.workflows.recipes.job import Job
from exporter.workflows.recipes.recipe import Recipe
from exporter.workflows.recipes.resolve import resolve

__all__ = ["preview_finetuning"]

# The gradients of weights and of activations take a forward pass's multiply-adds each.
FORWARD_AND_BACKWARD = 3


def preview_finetuning(
    recipe: Recipe, settings: FinetuneSettings, out: PathLike, *, teacher: PathLike | None = None
) -> Preview:
    """Return what `finetune` would do; no image is read, and nothing is written. The arguments are `finetune`'s.

    Raises:
        UserError: What `finetune` would refuse before its first step, or because of the model's shape.
    """
    path, job = output_file(Path(out)), resolve(recipe)
    amount = checked_amount(job, settings)
    job.check_named()
    vit = describe(job.model)
    if teacher is not None and not Path(teacher).exists():
        raise CheckpointError(str(teacher), "no such file", "a checkpoint")
    images = train_images(job.images, vit.spec)
    vit, trained = steps.with_class_names(vit, images), len(images.files)
    exam = Exam(job.images, vit.spec, Silent())
    expected = expected_of(job, amount, vit)
    work = _work(job, settings, vit.spec, expected, trained=trained, measured=exam.total)
    method = str(job.scoring.planned_by)
    return preview_of(vit.spec, work, path.parent, (path.name,), method=method, expected=expected)


def _work(
    job: Job,
    settings: FinetuneSettings,
    spec: ModelSpec,
    expected: Expected,
    *,
    trained: int,
    measured: int,
) -> tuple[Work, ...]:
    """Return the steps; `trained` images are trained on in each epoch, and so many `measured` on."""
    dense, pruned = dense_macs(spec).total, expected.macs(spec)
    work = [Work("model", 0, 0.0)]
    if job.reads_calibration and not job.calibration.exists:
        work.append(calibration_work(job, spec))
    if isinstance(job.amount, Speedup):
        work.append(search_work(job, job.amount, dense + pruned))
    work.append(Work("accuracy before", measured, float(measured * (dense + pruned))))
    # What is left over at the end of an epoch waits for another one.
    whole = trained - trained % settings.batch_size if trained > settings.batch_size else trained
    runs = settings.epochs * whole
    work.append(Work("training", runs, float(runs * (FORWARD_AND_BACKWARD * pruned + dense))))
    return (*work, Work("accuracy after", measured, float(measured * pruned)))
