"""Depth pruning that trains: choose units by learned gates, and collect samples of how many of each type can go."""

from dataclasses import dataclass, replace
from pathlib import Path

from torch import nn

from exporter.data.images import ImageFolder, listing_sha256
from exporter.data.source import images_at
from exporter.depth.checkpoint import Depth, read_depth
from exporter.depth.choose import Bookmark, Skipped, Stage, choose_units
from exporter.depth.collect import Measured, SampleBook, Tally, collect
from exporter.depth.gates import Importance
from exporter.depth.plan import ChoiceSettings, CollectSettings, UnitSettings
from exporter.depth.predictor import Sample
from exporter.depth.surgery import apply_plan
from exporter.errors import DepthError
from exporter.files import writable_folder
from exporter.formats.canonical_json import to_json
from exporter.models.base import PrunableViT, weights_sha256
from exporter.models.networks import identity_of
from exporter.training.checkpoint import versions
from exporter.training.data import TrainBatches
from exporter.training.finetune import finetune
from exporter.training.settings import FinetuneSettings
from exporter.workflows.depth.steps import Applied, Found, split_of, weights_file, written
from exporter.workflows.evaluating.models import torch_models
from exporter.workflows.exam import Exam, shown, train_images
from exporter.workflows.opened import Opened
from exporter.workflows.progress import Stages

__all__ = ["Chosen", "Collected", "choose_to", "choose_within", "collect_to"]


@dataclass(frozen=True)
class Collected:
    """The samples of a collection, and the reasons of the images that could not be read, by name.

    `skipped` has those to measure on, `training_skipped` those to train on.
    """

    samples: tuple[Measured, ...]
    skipped: dict[str, str]
    training_skipped: dict[str, str]


@dataclass(frozen=True)
class Chosen:
    """The network without the chosen units, and the scores that chose them.

    `training_skipped` has the reasons of the images to train on that could not be read, by name. Within a budget,
    `found` says how many units of each type go, and `collected` what that follows from unless samples were given.
    """

    applied: Applied
    importance: Importance
    training_skipped: dict[str, str]
    found: Found | None = None
    collected: Collected | None = None


def choose_to(opened: Opened, choice: ChoiceSettings, settings: FinetuneSettings, out: Path) -> Chosen:
    """Choose units by training, and write the network without them, its linear layers apart.

    Its weights are those of the whole model, or those of the last stage. A search that was killed continues after
    its last whole epoch; until it ends, its state lies beside `out`.

    Args:
        opened: The model and the images to train on; it shows progress.
        choice: How many units of each type go, and whose weights are written.
        settings: How to train; `epochs` are those of the first stage.
        out: A .safetensors file.

    Raises:
        UserError: The job cannot be carried out, or a file cannot be written.
    """
    path, last = _checked(opened, choice, out), choice.last_weights
    request, stages = opened.recipe.model, opened.stages
    vit, images = _loaded(opened, settings)
    run = _run(vit, images, choice, settings)
    bookmark = Bookmark(
        path.with_suffix(".search.safetensors"),
        identity_of(request, vit.spec.num_classes, vit.spec.class_names),
        run,
    )
    train = _DepthTrainer(
        vit, images, settings, path.with_suffix(".ckpt"), run, stages, bookmark.skipped, choice.growth
    )
    ranked = choose_units(vit, choice, train, bookmark)
    chosen = ranked.vit if last else apply_plan(vit, ranked.plan, unmerged=True)
    applied = written(request, vit, chosen, Depth(ranked.plan, merged=False), path, keep_pruning=not last)
    bookmark.path.unlink(missing_ok=True)
    return Chosen(applied, ranked.importance, bookmark.skipped.training)


def choose_within(
    opened: Opened,
    budget: CollectSettings,
    choice: ChoiceSettings,
    settings: FinetuneSettings,
    out: Path,
    *,
    samples: tuple[Sample, ...] | None = None,
) -> Chosen:
    """Find how many units of each type to remove within a budget, choose them, and write the network without them.

    Args:
        opened: The model, the images to train on, and, without samples, those to measure on; it shows progress.
        budget: How many units go in all, and how far the steps of a collection go.
        choice: As of `choose_to`; its counts are replaced.
        settings: How to train.
        out: A .safetensors file; samples are collected beside it, in a folder that ends in .samples.
        samples: What to predict accuracies from; None: samples are collected.

    Raises:
        UserError: The job cannot be carried out, or a file cannot be written.
    """
    path, collected = _checked(opened, choice, out), None
    vit = opened.described
    if samples is None:
        collected = collect_to(opened, budget, settings, path.with_suffix(".samples"))
        samples = tuple(each.sample for each in collected.samples)
    found = split_of(vit, samples, budget)
    best = found.best
    choice = replace(choice, attention_units=best.attention, activation_units=best.activation)
    chosen = choose_to(opened, choice, settings, out)
    return replace(chosen, found=found, collected=collected)


def collect_to(
    opened: Opened,
    collection: CollectSettings,
    settings: FinetuneSettings,
    out: Path,
) -> Collected:
    """Measure smaller and smaller models, and write each sample to `out`/samples.json at once.

    A collection that was killed continues after its last whole epoch and ends with the same samples.

    Args:
        opened: The model, the images to train on, and those to measure on, which then are no longer held out.
        collection: How far the steps go.
        settings: How to train after each step.
        out: A folder.

    Raises:
        UserError: The job cannot be carried out, or a file cannot be written.
    """
    folder, stages = writable_folder(out), opened.stages
    request, own = opened.recipe.model, opened.recipe.images
    vit, images = _loaded(opened, settings)
    exam = Exam(own, vit.spec, stages)
    skipped = Skipped()

    def evaluate(smaller: PrunableViT) -> Tally:
        (found,) = exam.predictions("accuracy", *torch_models(smaller))
        skipped.evaluation.update(exam.skipped)
        return Tally(found.accuracy.top1_hits, found.accuracy.images)

    measured = images_at(exam.place, vit.spec.num_classes, own.class_map, names=vit.spec.class_names)
    run = _run(vit, images, collection, settings, listing_sha256(measured), own.max_eval_images)
    identity = identity_of(request, vit.spec.num_classes, vit.spec.class_names)
    bookmark = Bookmark(folder / "last.safetensors", identity, run, skipped)
    train = _DepthTrainer(vit, images, settings, folder / "step.ckpt", run, stages, skipped)
    samples = collect(vit, collection, train, evaluate, book=SampleBook(folder), bookmark=bookmark)
    return Collected(samples, skipped.evaluation, skipped.training)


def _checked(opened: Opened, choice: ChoiceSettings, out: Path) -> Path:
    """Return the path of the weights, which are checked before the work.

    Raises:
        DepthError: They would be those of stages that do not prune patches, for a model that was trained to.
        OutputError: They cannot be written.
    """
    if choice.last_weights and opened.restored is not None:
        file = opened.recipe.model.checkpoint
        got = f"the last stage's beside {file}, whose pruned patches these stages do not train"
        hint = "recalibrate = true in the table [model] allows it, and the file then prunes no patches"
        raise DepthError("--last-weights", got, "those of the whole model", hint)
    return weights_file(out)


@dataclass(frozen=True, eq=False)
class _DepthTrainer:
    """Trains the stages of a search; each has a seed of its own, and `growth` epochs more than the one before.

    The teacher is the network with all units. `checkpoint` has the epochs of an unfinished stage. `skipped` takes
    the images that cannot be read.
    """

    teacher: PrunableViT
    images: ImageFolder
    settings: FinetuneSettings
    checkpoint: Path
    run: str
    stages: Stages
    skipped: Skipped
    growth: int = 0

    def __call__(self, student: nn.Module, stage: Stage) -> None:
        """Train a stage."""
        spec, settings = self.teacher.spec, self.settings
        own = replace(
            settings, epochs=settings.epochs + self.growth * stage.index, seed=settings.seed + stage.index
        )
        batches = TrainBatches(
            self.images, own, spec.preprocessing, spec.num_classes, skipped=self.skipped.training
        )
        identity = to_json({"run": self.run, "stage": stage, "weights": weights_sha256(student)})
        with self.stages.stage(stage.name) as advance:
            finetune(
                student,
                self.teacher.model,
                shown(batches, advance),
                own,
                checkpoint=self.checkpoint,
                identity=identity,
                skipped=batches.skipped,
            )
        self.checkpoint.unlink(missing_ok=True)


def _loaded(opened: Opened, settings: FinetuneSettings) -> tuple[PrunableViT, ImageFolder]:
    """Return the model and the images to train on.

    Raises:
        DepthError: The model lacks units already.
        ModelError: Its answers are the same for every image.
    """
    file = opened.recipe.model.checkpoint
    if read_depth(file) is not None:
        raise DepthError(str(file), "a model without some units", "the whole one")
    return opened.whole, train_images(opened, settings.max_train_images)


def _run(
    vit: PrunableViT, images: ImageFolder, units: UnitSettings, settings: FinetuneSettings, *more: object
) -> str:
    """Return the settings and inputs of a search as text."""
    return to_json(
        {
            "units": units,
            "settings": settings,
            "weights": vit.weights_sha256,
            "images": listing_sha256(images),
            "more": more,
            "versions": versions(),
        }
    )
