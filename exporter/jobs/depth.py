"""Depth pruning as a job: apply a plan to a model, choose units by training, find how many of each type can go."""

from dataclasses import dataclass, replace
from pathlib import Path

from torch import nn

from exporter.core.base.canonical_json import to_json
from exporter.core.base.errors import DepthError
from exporter.core.base.files import writable_folder
from exporter.core.base.machine import job_identity
from exporter.core.base.vocabulary import UnitType
from exporter.core.schedule.macs import dense_macs
from exporter.core.vit.protocol import PrunableViT, weights_sha256
from exporter.data.images import ImageFolder, listing_sha256
from exporter.depth.checkpoint import DEPTH, Depth, read_depth
from exporter.depth.choose import Bookmark, Stage, Train, choose_units, spare
from exporter.depth.collect import Measured, Tally, collect
from exporter.depth.gates import Importance
from exporter.depth.plan import ChoiceSettings, DepthPlan
from exporter.depth.predictor import (
    CrossValidation,
    Predictor,
    Sample,
    Split,
    accuracies_of,
    best_split,
    fit_best,
    splits,
)
from exporter.depth.surgery import apply_plan
from exporter.jobs.checks import check_training_images
from exporter.jobs.eval_models import torch_models
from exporter.jobs.exam import Exam, train_images, with_progress
from exporter.jobs.network import TRAIN_IMAGES, Network, loaded
from exporter.jobs.recipe import needed
from exporter.models.identity import save_weights, weights_file
from exporter.models.networks import identity_of
from exporter.models.request import ModelRequest
from exporter.training.data import TrainBatches
from exporter.training.finetune import finetune
from exporter.training.pruned_checkpoint import pruning_records, read_pruning
from exporter.training.settings import FinetuneSettings


@dataclass(frozen=True)
class Applied:
    """A network without some units: its file, what it lacks, and multiply-adds and parameters before and after."""

    file: str
    depth: Depth
    gmacs_before: float
    gmacs_after: float
    parameters_before: int
    parameters_after: int


@dataclass(frozen=True)
class Found:
    """The split of a budget with the highest predicted accuracy, and all of them.

    `rmse` has the cross-validation error of each degree, in percentage points.
    """

    best: Split
    splits: tuple[Split, ...]
    predictor: Predictor
    rmse: dict[int, float]


def apply_to(
    request: ModelRequest, plan: DepthPlan, out: Path, *, unmerged: bool = False
) -> Applied:
    """Remove the units of a plan from a model, and write its weights with what it is.

    Units that the checkpoint lacks already stay gone; without a plan of its own, an unmerged one is merged. What
    prunes the checkpoint's patches is kept.
    """
    before = read_depth(request.checkpoint)
    removed = _joined(before.plan if before else DepthPlan(), plan)
    if not removed.units:
        raise DepthError(
            "depth", "no unit to remove", "--attention or --activation with layers"
        )
    weights_file(out)
    vit = loaded(request)
    if before is not None and before.merged and unmerged:
        raise DepthError(
            "unmerged", "a checkpoint whose layers are merged", "the unmerged one"
        )
    result = apply_plan(vit, removed, unmerged=unmerged)
    depth = Depth(removed, merged=not unmerged)
    return _written(request, vit, result, depth, out)


def _written(
    request: ModelRequest,
    before: PrunableViT,
    result: PrunableViT,
    depth: Depth,
    out: Path,
    *,
    keep_pruning: bool = True,
) -> Applied:
    """Write a requested model without some units; what its checkpoint prunes patches with is kept if asked for."""
    more: dict[str, object] = {}
    trained = read_pruning(request.checkpoint) if keep_pruning else None
    if trained is not None:
        more = pruning_records(trained.schedule, trained.calibration)
    identity = identity_of(request, before.spec.head_channels, before.spec.class_names)
    save_weights(result.model, identity, out, **{DEPTH: depth}, **more)
    return Applied(
        str(out),
        depth,
        dense_macs(before.spec.as_it_came).gmacs,
        dense_macs(result.spec.as_it_came).gmacs,
        _parameters(before.model),
        _parameters(result.model),
    )


def _parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def _joined(first: DepthPlan, second: DepthPlan) -> DepthPlan:
    """Return the plan with the units of both; the variant is the first one's where that removes attention."""
    if first.attention and second.attention and first.variant != second.variant:
        raise DepthError(
            "variant", str(second.variant), f"{first.variant}, as the checkpoint has"
        )
    variant = first.variant if first.attention else second.variant
    return DepthPlan(
        (*first.attention, *second.attention),
        (*first.activation, *second.activation),
        variant,
    )


def split_of(
    vit: PrunableViT, samples: tuple[Sample, ...], settings: ChoiceSettings
) -> Found:
    """Fit the predictor, and return the best split of a budget among the units of a ViT that may go.

    The ViT's weights are not read. Leave-two-out cross-validation chooses the predictor's degree.
    """
    most = {unit: spare(vit, unit, settings) for unit in UnitType}
    depth, units = vit.spec.depth, settings.units
    rmse = CrossValidation(samples).rmse(accuracies_of(samples))
    predictor = fit_best(samples)
    best = best_split(predictor, depth, units, most)
    ranked = splits(predictor, depth, units)
    return Found(best, tuple(ranked), predictor, rmse)


@dataclass(frozen=True)
class Collected:
    """The samples of a collection, and the reasons of the images that could not be read, by name."""

    samples: tuple[Measured, ...]
    skipped: dict[str, str]
    training_skipped: dict[str, str]


@dataclass(frozen=True)
class Chosen:
    """The network without the chosen units, and the scores that chose them.

    `training_skipped` is as in `Collected`. Within a budget, `found` says how many units of each type go, and
    `collected` what that follows from unless samples were given.
    """

    applied: Applied
    importance: Importance
    training_skipped: dict[str, str]
    found: Found | None = None
    collected: Collected | None = None


def choose_to(
    network: Network,
    choice: ChoiceSettings,
    settings: FinetuneSettings,
    out: Path,
    *,
    samples: tuple[Sample, ...] | None = None,
) -> Chosen:
    """Choose units by training, and write the network without them, its linear layers apart.

    Its weights are those of the whole model, or those of the last stage. A search that was killed continues
    after its last whole epoch; until it ends, its state lies beside `out`. The epochs of the settings are
    those of the first stage; `out` is a .safetensors file.

    Of units in all, `samples` say how many of each type go. Without them, they are collected, with the images
    to measure on, beside `out` in a folder that ends in .samples.
    """
    if choice.last_weights and network.restored is not None:
        file = network.recipe.model.checkpoint
        got = f"the last stage's beside {file}, whose pruned patches these stages do not train"
        hint = "recalibrate = true in the table [model] allows it, and the file then prunes no patches"
        raise DepthError("--last-weights", got, "those of the whole model", hint)
    path, split, collected = weights_file(out), None, None
    if choice.units:
        if samples is None:
            collected = collect_to(
                network, choice, settings, path.with_suffix(".samples")
            )
            samples = collected.samples
        split = split_of(network.described, samples, choice)
        attention, activation = split.best.attention, split.best.activation
        choice = replace(
            choice,
            units=0,
            step=1,
            attention_units=attention,
            activation_units=activation,
        )
    chosen = _chosen(network, choice, settings, path)
    return replace(chosen, found=split, collected=collected)


def _chosen(
    network: Network, choice: ChoiceSettings, settings: FinetuneSettings, path: Path
) -> Chosen:
    """Choose so many units of each type, and write the network without them."""
    last, images = choice.last_weights, _training_images(network, settings)
    train, bookmark = _started(
        network,
        choice,
        settings,
        images,
        checkpoint=path.with_suffix(".ckpt"),
        state=path.with_suffix(".search.safetensors"),
    )
    ranked = choose_units(network.full, choice, train, bookmark)
    vit = ranked.vit
    if not last:
        vit = apply_plan(network.full, ranked.plan, unmerged=True)
    depth = Depth(ranked.plan, merged=False)
    applied = _written(
        network.recipe.model, network.full, vit, depth, path, keep_pruning=not last
    )
    bookmark.path.unlink(missing_ok=True)
    return Chosen(applied, ranked.importance, bookmark.skipped.training)


def collect_to(
    network: Network, choice: ChoiceSettings, settings: FinetuneSettings, out: Path
) -> Collected:
    """Measure smaller and smaller models, and write each sample to `out`/samples.json at once.

    A collection that was killed continues after its last whole epoch and ends with the same samples. The
    images to measure on then are no longer held out.
    """
    folder = writable_folder(out)
    # samples do not depend on them
    choice = replace(choice, growth=0, last_weights=False)
    check_training_images(network)
    images = _training_images(network, settings)
    exam = Exam(network.recipe.images, network.full.spec, network.stages)
    train, bookmark = _started(
        network,
        choice,
        settings,
        images,
        checkpoint=folder / "step.ckpt",
        state=folder / "last.safetensors",
        more=listing_sha256(exam.source),
    )
    skipped = bookmark.skipped
    exam.warn_of(images)

    def evaluate(smaller: PrunableViT) -> Tally:
        (predictions,) = exam.predictions("accuracy", *torch_models(smaller))
        skipped.evaluation.update(exam.skipped)
        return Tally(predictions.accuracy.top1_hits, predictions.accuracy.images)

    out = folder / "samples.json"
    samples = collect(network.full, choice, train, evaluate, bookmark=bookmark, out=out)
    return Collected(samples, skipped.evaluation, skipped.training)


def _training_images(network: Network, settings: FinetuneSettings) -> ImageFolder:
    """Return the images to train on; DepthError where a unit was removed of the model already."""
    file = network.recipe.model.checkpoint
    if read_depth(file) is not None:
        raise DepthError(str(file), "a model without some units", "the whole one")
    needed(network.recipe.images.images, "--images", TRAIN_IMAGES)
    network.check_images()
    return train_images(network, settings.max_train_images)


def _started(
    network: Network,
    choice: ChoiceSettings,
    settings: FinetuneSettings,
    images: ImageFolder,
    *,
    checkpoint: Path,
    state: Path,
    more: object = None,
) -> tuple[Train, Bookmark]:
    """Return what trains the stages of a search, and its state after the last whole one.

    Each stage has a seed of its own, and `growth` epochs more than the one before. The teacher is the network with
    all units. `checkpoint` has the epochs of an unfinished stage. `more` is what the search depends on beside its
    settings, the model and the images to train on.
    """
    vit, spec = network.full, network.full.spec
    run = job_identity(
        (choice, settings, more),
        models=(spec, vit.weights_sha256),
        images=[listing_sha256(images)],
    )
    identity = identity_of(network.recipe.model, spec.num_classes, spec.class_names)
    bookmark = Bookmark(state, identity, run)
    skipped = bookmark.skipped.training

    def train(student: nn.Module, stage: Stage) -> None:
        of_stage = replace(
            settings,
            epochs=settings.epochs + choice.growth * stage.index,
            seed=settings.seed + stage.index,
        )
        batches = TrainBatches(
            images, of_stage, spec.preprocessing, spec.num_classes, skipped=skipped
        )
        weights = weights_sha256(student)
        with network.stages.stage(stage.name) as advance:
            finetune(
                student,
                vit.model,
                with_progress(batches, advance),
                of_stage,
                checkpoint=checkpoint,
                identity=to_json({"run": run, "stage": stage, "weights": weights}),
                skipped=skipped,
            )
        checkpoint.unlink(missing_ok=True)

    return train, bookmark
