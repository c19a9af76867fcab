"""Fine-tune a pruned model: prune, train with the unpruned model as teacher, and measure what that wins back."""

import logging
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path

from torch import nn

from exporter.calibration.calibrate import calibrate
from exporter.core.base.errors import ModelError, RecipeError
from exporter.core.base.files import PathLike, writable_file
from exporter.core.base.machine import job_identity
from exporter.core.base.progress import SILENT, Stages
from exporter.core.base.records import ModelSpec, Pair, Schedule
from exporter.core.base.vocabulary import InputKind
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.schedule.macs import dense_macs
from exporter.core.verify.reference import mean_useful_macs
from exporter.core.vit.protocol import PrunableViT
from exporter.data.images import ImageFolder, listing_sha256
from exporter.data.source import images_at
from exporter.depth.checkpoint import DEPTH, read_depth
from exporter.jobs.checks import check_finetune
from exporter.jobs.exam import (
    Exam,
    parted,
    score_on,
    train_images,
    with_progress,
)
from exporter.jobs.network import TRAIN_IMAGES, Network, loaded
from exporter.jobs.opened import DryRun, dry_run, open_recipe
from exporter.jobs.recipe import Recipe, needed
from exporter.jobs.variant import Variant
from exporter.measure.accuracy import Accuracy, Predictions
from exporter.measure.class_order import class_order, with_class_names
from exporter.measure.loss import (
    PairResult,
    Recovery,
    Tuned,
    compare_predictions,
    recovery_of,
)
from exporter.models.identity import Identity, read_record, save_weights
from exporter.models.networks import identity_of
from exporter.models.own_vit import OwnModel
from exporter.models.registry import check_trainable, trainable
from exporter.models.request import ModelRequest
from exporter.processes import processes
from exporter.report import words
from exporter.training.data import TrainBatches
from exporter.training.finetune import Reordered, finetune
from exporter.training.pruned_checkpoint import TUNED, pruning_records
from exporter.training.settings import FinetuneSettings

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Trained:
    """The file of the weights, the numbers of training images, and the reasons of those that cannot be read.

    `epoch` is the one whose weights were kept, by the `held_out` training images: 0 where no epoch has made the
    model better, and the file has the weights from before.
    """

    file: str
    epoch: int
    images: int
    held_out: int
    skipped: dict[str, str]
    settings: FinetuneSettings
    processes: int


@dataclass(frozen=True)
class FinetuneResult:
    """The unpruned model, and the pruned one before and after training, on images that training does not see.

    One choice reads them: weights that are worse on them than those before training are not kept.
    `gmacs_dense` are those of the model as it came, `gmacs_pruned` those of an image before training, under
    a-STAR the mean over a batch of training images.
    """

    model: str
    schedule: Schedule
    gmacs_dense: float
    gmacs_pruned: float
    dense: Accuracy
    before: Accuracy
    after: Accuracy
    loss_before: PairResult
    loss_after: PairResult
    recovery: Recovery
    trained: Trained
    skipped: dict[str, str]

    def __repr__(self) -> str:
        top1 = f"{self.before.top1:.2%} → {self.after.top1:.2%}, unpruned {self.dense.top1:.2%}"
        return f"<FinetuneResult {self.model}, {self.schedule.method}: {top1}>"


def finetune_model(
    recipe: Recipe,
    settings: FinetuneSettings,
    out: PathLike,
    *,
    model: OwnModel | None = None,
    teacher: PathLike | OwnModel | None = None,
    stages: Stages = SILENT,
) -> FinetuneResult:
    """Prune the recipe's model, train it, and write its weights with all that prunes them to `out`.

    The weights are those after the best epoch, by a share of the training images that is held out; those before
    training where no epoch is better. The file keeps what was measured of them, and of the unpruned model before.
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
    path, opened = Path(out), open_recipe(recipe, stages, model)
    models, images, exam = _prepared(opened, settings, teacher, path)
    variant = _student(opened, models, images, path)
    pruned = variant.pruned
    pixels = variant.network.pixels(images, recipe.measure.batch, InputKind.FLOAT32)
    macs = mean_useful_macs(pruned, pixels, InputKind.FLOAT32)
    ready = [variant.dense.ready("dense"), variant.ready("pruned")]
    dense, before = exam.predictions("accuracy before", *ready)
    start = deepcopy(pruned.state_dict())
    parts = parted(images, recipe.images.seed)
    epoch, skipped = _train(pruned, models, parts, settings, out=path, stages=stages)
    (after,) = exam.predictions("accuracy after", ready[1])
    if after.accuracy.top1 < before.accuracy.top1:
        pruned.load_state_dict(start)
        epoch, after = 0, before
    trained_on, held_out = (len(part.files) for part in parts)
    trained = Trained(
        str(path), epoch, trained_on, held_out, skipped, settings, processes().count
    )
    result = result_of(pruned, macs, trained, (dense, before, after), exam)
    if processes().main:
        _save(variant, models.identity, result, exam.place, path)
    processes().wait()
    if processes().main:
        for unfinished in _unfinished(path):
            unfinished.unlink(missing_ok=True)
    return result


def _save(
    variant: Variant,
    identity: Identity | None,
    result: FinetuneResult,
    measured_on: Path,
    path: Path,
) -> None:
    """Write the trained weights with what prunes them and what was measured."""
    checkpoint = variant.network.recipe.model.checkpoint
    place = str(Path(*measured_on.resolve().parts[-2:]))
    accuracy = Pair(result.dense, result.after)
    loss = replace(result.loss_after, classes=())
    earlier = read_record(checkpoint, TUNED, Tuned)
    records = {
        DEPTH: read_depth(checkpoint),
        TUNED: Tuned(place, accuracy, loss, earlier=earlier),
        **pruning_records(variant.schedule, variant.calibration),
    }
    save_weights(variant.pruned.model, identity, path, **records)


def dry_finetune(
    recipe: Recipe,
    settings: FinetuneSettings,
    out: PathLike,
    *,
    teacher: PathLike | None = None,
) -> DryRun:
    """Check what `finetune_model` checks before its first step, weights included; nothing is written."""
    opened = open_recipe(recipe)
    _prepared(opened, settings, teacher, Path(out))
    return dry_run(opened, recipe, settings)


def _prepared(
    opened: Variant,
    settings: FinetuneSettings,
    teacher: PathLike | OwnModel | None,
    out: Path,
) -> tuple["Distillation", ImageFolder, Exam]:
    """Return the models, the images to train on and those to measure on, after all checks."""
    network, policy = opened.network, opened.policy
    assert policy is not None
    for unfinished in _unfinished(out):
        writable_file(unfinished)
    check_finetune(network, policy, settings.batch_size, out)
    models = models_of(network, teacher)
    images = train_images(network, settings.max_train_images)
    student = with_class_names(models.student, images)
    identity = models.identity and replace(
        models.identity, class_names=student.spec.class_names
    )
    exam = Exam(network.recipe.images, student.spec, network.stages)
    exam.warn_of(images)
    prepared = replace(
        models, student=student, identity=identity, order=_order(models, network)
    )
    return prepared, images, exam


def _order(models: "Distillation", network: Network) -> tuple[int, ...]:
    """Return the teacher's index of each of the student's classes; () where it is the same for each."""
    images = network.recipe.images

    def listed(spec: ModelSpec) -> ImageFolder:
        place = needed(images.images, "--images", TRAIN_IMAGES)
        return images_at(place, spec.num_classes, names=spec.class_names)

    specs = models.student.spec, models.teacher.spec
    return class_order(specs, ("model", "teacher"), images.class_map, listed)


def _unfinished(out: Path) -> tuple[Path, Path]:
    """Return the paths of a training's checkpoint and of a calibration's sums, which a continued run reads."""
    return out.with_suffix(".ckpt"), out.with_suffix(".calibration.partial")


def _student(
    opened: Variant, models: "Distillation", images: ImageFolder, out: Path
) -> Variant:
    """Return the variant whose network is the student, calibrated on the images to train on if nothing is given."""
    network = replace(opened.network.with_outputs(), model=models.student)
    variant = replace(opened, network=network, lowering=None)
    if network.has_calibration or not variant.reads_calibration:
        return variant
    _, sums = _unfinished(out)
    with network.stages.stage("calibration") as advance:
        calibration = calibrate(
            models.student,
            images,
            variant.calibrates,
            partial=sums,
            on_progress=advance,
        )
    return replace(variant, measured=calibration)


def _train(
    pruned: PrunedViT,
    models: "Distillation",
    parts: tuple[ImageFolder, ImageFolder],
    settings: FinetuneSettings,
    *,
    out: Path,
    stages: Stages,
) -> tuple[int, dict[str, str]]:
    """Train the pruned model in place; return its epoch, and why images could not be read by any process.

    `parts` are the images to train on, and those that choose the epoch.
    """
    vit, (images, held_out) = pruned.vit, parts
    checkpoint, _ = _unfinished(out)
    batches = TrainBatches(
        images, settings, vit.spec.preprocessing, vit.spec.num_classes
    )
    run = job_identity(
        (settings, pruned.schedule, processes().count, *models.order),
        models=(vit.spec, vit.weights_sha256, models.teacher.weights_sha256),
        images=[listing_sha256(part) for part in parts],
    )
    processes().same("the run", run)
    with stages.stage("training") as advance, trainable(vit):
        epoch = finetune(
            pruned,
            models.teaching,
            with_progress(batches, advance),
            settings,
            checkpoint=checkpoint,
            identity=run,
            skipped=batches.skipped,
            score=score_on(held_out, batches.skipped),
        )
    return epoch, batches.skipped


@dataclass(frozen=True, eq=False)
class Distillation:
    """The student, which is trained in place, and the teacher; they share no weights.

    `identity` says how to build the network. It is None for a model of the caller's, of which nothing is known.
    `order` has the teacher's index of each of the student's classes, () where it is the same.
    """

    student: PrunableViT
    teacher: PrunableViT
    identity: Identity | None
    order: tuple[int, ...] = ()

    @property
    def teaching(self) -> nn.Module:
        """The teacher, with its logits in the order of the student's classes."""
        model = self.teacher.model
        return Reordered(model, self.order) if self.order else model


def models_of(network: Network, teacher: PathLike | OwnModel | None) -> Distillation:
    """Load both models.

    A model of the caller's is copied. The teacher is by default the model itself, before it is trained.
    """
    student, request = network.full, network.recipe.model
    if student is network.model:
        student = deepcopy(student)
    check_trainable(student)
    spec, identity = student.spec, None
    if network.model is None:
        identity = identity_of(request, spec.num_classes, spec.class_names)
    models = Distillation(student, _teacher(network, identity, teacher), identity)
    classes = models.teacher.spec.num_classes
    if classes != spec.num_classes:
        got = f"{classes} classes"
        raise ModelError("teacher", got, f"{spec.num_classes}, as the model has")
    # It sees the student's images.
    theirs, ours = models.teacher.spec.preprocessing, spec.preprocessing
    cropped_alike = replace(
        ours, input_size=theirs.input_size, mean=theirs.mean, std=theirs.std
    )
    if cropped_alike != ours:
        got, expected = map(words.preprocessing, (theirs, ours))
        raise ModelError("teacher", got, f"{expected}, as the model has")
    return models


def _teacher(
    network: Network, identity: Identity | None, teacher: PathLike | OwnModel | None
) -> PrunableViT:
    """Load the teacher: of a named model the same network, with other weights if there are any."""
    request = network.recipe.model
    if isinstance(teacher, PrunableViT | nn.Module):
        return loaded(request, teacher)
    if teacher is None:
        if identity is not None and read_depth(request.checkpoint) is not None:
            text = "the teacher is the shallower network too; --teacher FILE gives the whole one's weights"
            logger.warning(text)
        return loaded(request, network.model)
    if identity is None:
        expected = "a model with the teacher's weights"
        raise RecipeError("teacher", "a file beside a model", expected)
    return loaded(
        ModelRequest(
            identity.architecture,
            teacher,
            model_kwargs=identity.model_kwargs,
            preprocess=identity.preprocessing,
            device=request.device,
        )
    )


def result_of(
    pruned: PrunedViT,
    macs: float,
    trained: Trained,
    predictions: tuple[Predictions, Predictions, Predictions],
    exam: Exam,
) -> FinetuneResult:
    """Compare what the dense model, the pruned and the trained one predict for the same labelled images.

    `macs` are the pruned model's, `exam` is where the images come from.
    """
    dense, before, after = predictions
    return FinetuneResult(
        model=pruned.vit.spec.name,
        schedule=pruned.schedule,
        gmacs_dense=dense_macs(pruned.vit.spec.as_it_came).gmacs,
        gmacs_pruned=macs / 1e9,
        dense=dense.accuracy,
        before=before.accuracy,
        after=after.accuracy,
        loss_before=compare_predictions(
            dense, before, ("dense", "before"), exam.source.class_names
        ),
        loss_after=compare_predictions(
            dense, after, ("dense", "after"), exam.source.class_names
        ),
        recovery=recovery_of(dense.hits[:, 0], before.hits[:, 0], after.hits[:, 0]),
        trained=trained,
        skipped=exam.skipped,
    )
