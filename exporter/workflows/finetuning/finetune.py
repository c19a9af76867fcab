"""Fine-tune a pruned model: prune, train with the unpruned model as teacher, and measure what that wins back."""

from dataclasses import replace
from pathlib import Path

from exporter.calibration.calibrate import calibrate
from exporter.calibration.record import Calibration
from exporter.data.batches import first_images
from exporter.data.images import ImageFolder, listing_sha256, sample
from exporter.depth.checkpoint import read_depth
from exporter.errors import OutputError, RecipeError
from exporter.files import PathLike, writable_file
from exporter.formats.canonical_json import to_json
from exporter.models.base import PrunableViT
from exporter.models.registry import trainable
from exporter.processes import processes
from exporter.pruning.checkpoint import save_checkpoint
from exporter.pruning.pruned_vit import PrunedViT
from exporter.training.checkpoint import versions
from exporter.training.data import TrainBatches
from exporter.training.finetune import finetune
from exporter.training.settings import FinetuneSettings
from exporter.vocabulary import InputKind
from exporter.workflows import steps
from exporter.workflows.compiling.schedule import schedule_of
from exporter.workflows.dry_run import DryRun, dry_run
from exporter.workflows.evaluating.models import torch_models
from exporter.workflows.finetuning.images import Exam, shown, train_images
from exporter.workflows.finetuning.models import OwnModel, models_of
from exporter.workflows.finetuning.result import FinetuneResult, Trained, result_of
from exporter.workflows.measuring import mean_useful_macs
from exporter.workflows.memory import check_batches
from exporter.workflows.progress import Silent, Stages
from exporter.workflows.recipes.job import Job
from exporter.workflows.recipes.recipe import Recipe
from exporter.workflows.recipes.resolve import resolve

__all__ = ["dry_finetune", "finetune_model"]


def finetune_model(
    recipe: Recipe,
    settings: FinetuneSettings,
    out: PathLike,
    *,
    model: OwnModel | None = None,
    teacher: PathLike | OwnModel | None = None,
    stages: Stages | None = None,
) -> FinetuneResult:
    """Prune the recipe's model, train it, and write its weights with all that prunes them to `out`.

    Under a launcher, all processes call this, and the main one writes. An interrupted run continues after its last
    whole epoch, and ends with the same weights.

    Args:
        recipe: The model, the images to train and to measure on, and how much to prune.
        settings: How to train.
        out: A .safetensors file. Until the run ends, a checkpoint and the sums of its calibration lie beside it.
        model: A ViT to use instead of the recipe's, an adapter or a module; it is copied, not changed. The file
            then does not say how to build the network.
        teacher: Weights of the teacher, or the teacher itself; by default the unpruned model.
        stages: Shows progress.

    Raises:
        UserError: The recipe cannot be carried out, or a file cannot be written.
    """
    stages, path, job = stages or Silent(), _output_file(Path(out)), resolve(recipe)
    _check_amount(job, settings)
    with stages.stage("model"):
        models = models_of(job, model, teacher)
        images = train_images(job.images, models.student.spec)
        vit = steps.with_class_names(models.student, images)
        identity = models.identity and replace(models.identity, class_names=vit.spec.class_names)
        check_batches("--batch-size", (settings.batch_size // processes().count,), vit.spec)
        check_batches("--batch", (job.measuring.batch,), vit.spec)
        exam = Exam(job.images, vit.spec, stages)
    pruned, calibration, macs = _pruned(vit, images, job, path, stages)
    dense, before = exam.predictions("accuracy before", *torch_models(vit, pruned.schedule, calibration))
    skipped = _train(pruned, models.teacher, images, settings, out=path, stages=stages)
    if processes().main:
        save_checkpoint(pruned, identity, calibration, path, read_depth(job.model.checkpoint))
    processes().wait()  # all of them read the file
    trained = steps.load_model(replace(job.model, checkpoint=path), job.device) if identity else vit
    (after,) = exam.predictions("accuracy after", torch_models(trained, pruned.schedule, calibration)[1])
    if processes().main:
        for unfinished in (_partial(path), _sums(path)):
            unfinished.unlink(missing_ok=True)
    return result_of(
        vit.spec,
        pruned.schedule,
        macs,
        Trained(str(path), len(images.files), skipped, settings, processes().count),
        dense=dense,
        before=before,
        after=after,
        class_names=exam.class_names,
        skipped=exam.skipped,
    )


def dry_finetune(
    recipe: Recipe, settings: FinetuneSettings, out: PathLike, *, teacher: PathLike | None = None
) -> DryRun:
    """Check what `finetune_model` checks before its first step, weights included; nothing is written.

    Raises:
        UserError: The recipe cannot be carried out, or the file cannot be written.
    """
    _output_file(Path(out))
    job = resolve(recipe)
    _check_amount(job, settings)
    vit = models_of(job, None, teacher).student
    Exam(job.images, vit.spec, Silent())
    train_images(job.images, vit.spec)
    return dry_run(vit, job, recipe, settings)


def _output_file(path: Path) -> Path:
    """Return where the weights go.

    Raises:
        OutputError: It is no .safetensors file, or cannot be written.
    """
    if path.suffix != ".safetensors":
        raise OutputError("--out", str(path), "a name that ends in .safetensors")
    for unfinished in (_partial(path), _sums(path)):
        writable_file(unfinished)
    return writable_file(path)


def _partial(path: Path) -> Path:
    """Return the path of the checkpoint of an unfinished run."""
    return path.with_suffix(".ckpt")


def _sums(path: Path) -> Path:
    """Return the path of the sums of the calibration, which a continued run reads."""
    return path.with_suffix(".calibration.partial")


def _check_amount(job: Job, settings: FinetuneSettings) -> None:
    """Raise RecipeError where the amount to prune is missing, or processes cannot share a batch."""
    count = processes().count
    if settings.batch_size % count:
        raise RecipeError("batch_size", str(settings.batch_size), f"a multiple of the {count} processes")
    job.needed_amount("finetune")


def _pruned(
    vit: PrunableViT, images: ImageFolder, job: Job, out: Path, stages: Stages
) -> tuple[PrunedViT, Calibration | None, float]:
    """Return the pruned model, the calibration where one is needed, and the MACs of an image."""
    calibration = steps.read_calibration(job.calibration, vit.spec, vit.weights_sha256)
    if calibration is None and job.reads_calibration:
        with stages.stage("calibration") as advance:
            settings = job.calibration.settings
            calibration = calibrate(vit, images, settings, partial=_sums(out), on_progress=advance)
    some = sample(images, job.measuring.batch, job.images.seed).files
    pixels = first_images(some, vit.spec.preprocessing, InputKind.FLOAT32, job.measuring.batch)
    amount = job.needed_amount("finetune")
    schedule = schedule_of(vit, calibration, amount=amount, job=job, stages=stages)
    pruned = steps.prune(vit, schedule, calibration)
    return pruned, calibration, mean_useful_macs(pruned, pixels, InputKind.FLOAT32)


def _train(
    pruned: PrunedViT,
    teacher: PrunableViT,
    images: ImageFolder,
    settings: FinetuneSettings,
    *,
    out: Path,
    stages: Stages,
) -> dict[str, str]:
    """Train the pruned model in place; return the images that no process could read, with reasons."""
    vit = pruned.vit
    batches = TrainBatches(images, settings, vit.spec.preprocessing, vit.spec.num_classes)
    run = to_json(
        {
            "settings": settings,
            "schedule": pruned.schedule,
            "weights": (vit.weights_sha256, teacher.weights_sha256),
            "images": listing_sha256(images),
            "versions": versions(),
            "processes": processes().count,
        }
    )
    processes().same("the run", run)
    with stages.stage("training") as advance, trainable(vit):
        finetune(
            pruned,
            teacher.model,
            shown(batches, advance),
            settings,
            checkpoint=_partial(out),
            identity=run,
            skipped=batches.skipped,
        )
    return batches.skipped
