"""The images of training: those to train on, and those to measure on, which training never sees."""

import logging
from collections.abc import Iterator

from torch import nn

from exporter.core.base.errors import ImageError, ModelError
from exporter.core.base.progress import Advance, Stages
from exporter.core.base.records import ModelSpec
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.data.images import ImageFolder, sample, shared_count, split
from exporter.data.source import class_mismatch, open_source
from exporter.jobs.checks import HELD_OUT_IMAGES
from exporter.jobs.network import Network
from exporter.jobs.predicting import EvalModel, predict_models, reference_model
from exporter.jobs.recipe import Images, needed
from exporter.measure.accuracy import Predictions
from exporter.measure.settings import BATCH
from exporter.processes import processes
from exporter.training.checkpoint import Score
from exporter.training.data import TrainBatches
from exporter.training.finetune import EpochBatches, TrainBatch

logger = logging.getLogger(__name__)

# The share of the training images that is held out to choose the best epoch by, the most, and too few to tell.
HELD_OUT, MOST, FEW = 0.1, 2000, 5

NO_CLASSES = "a model without logits, which has no classes to learn"


class Exam:
    """The labelled images to measure on; `skipped` has the reasons of those that could not be read, by name."""

    def __init__(self, images: Images, spec: ModelSpec, stages: Stages) -> None:
        self.place = needed(images.eval_images, "--eval-images", HELD_OUT_IMAGES)
        self.stages, self.skipped = stages, dict[str, str]()
        self.source = open_source(
            [self.place],
            spec.num_classes,
            class_map=images.class_map,
            names=spec.class_names,
            needs_labels=True,
            max_images=images.max_eval_images,
            seed=images.seed,
        )

    def predictions(self, stage: str, *models: EvalModel) -> tuple[Predictions, ...]:
        """Return what the models predict."""
        with self.stages.stage(stage) as advance:
            answers = predict_models(models, self.source, BATCH, advance)
        self.skipped |= answers.skipped
        return answers.predictions

    def warn_of(self, trained: ImageFolder) -> None:
        """Log one line where images to measure on are trained on too."""
        seen = shared_count(self.source, trained)
        if seen:
            text = "%s: %d of %d images to measure on are trained on: what is measured on them is too good"
            logger.warning(text, self.place, seen, len(self.source.files))


def train_images(network: Network, most: int | None) -> ImageFolder:
    """Return the images to train on, at most so many, drawn by the seed."""
    spec, num_classes = network.full.spec, network.full.spec.num_classes
    if not num_classes:
        hint = "train it before, with a loss of its own"
        raise ModelError(spec.name, NO_CLASSES, "a classifier", hint)
    folder = network.labelled
    mismatch = class_mismatch(folder, num_classes)
    for file in folder.files:
        if file.label is None:
            got = f"no class ({mismatch})" if mismatch else "no class"
            expected = (
                f"one of {num_classes}: one folder per class, or labels in tar files"
            )
            raise ImageError(
                folder.name_of(file.path),
                got,
                expected,
                "--class-map FILE gives indices",
            )
    return sample(folder, most, network.recipe.images.seed)


def parted(images: ImageFolder, seed: int) -> tuple[ImageFolder, ImageFolder]:
    """Return the images to train on and those that are held out, none of few, by the seed."""
    total = len(images.files)
    share = min(HELD_OUT, MOST / total)
    return split(images, share if int(share * total) > FEW else 0.0, seed)


def score_on(images: ImageFolder, skipped: dict[str, str]) -> Score | None:
    """Return a function from a pruned model to how many images it has right; None without images.

    Images that cannot be read are noted in `skipped`, by name.
    """

    def score(model: nn.Module) -> float:
        assert isinstance(model, PrunedViT)
        student = reference_model(model, "held out")
        answers = predict_models([student], images, BATCH, lambda *_: None)
        skipped.update(answers.skipped)
        return answers.predictions[0].accuracy.top1_hits

    return score if images.files else None


def with_progress(batches: TrainBatches, advance: Advance) -> EpochBatches:
    """Return the batches as they are; they show progress, in images, while they are used."""
    total = len(batches.images.files)

    def of_epoch(epoch: int) -> Iterator[TrainBatch]:
        done = epoch * total
        for batch in batches(epoch):
            yield batch
            done += len(batch[0]) * processes().count
            advance(done, batches.settings.epochs * total)

    return of_epoch
