"""What a compilation proves of its two models: parity, accuracy and speed."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from exporter.data.batches import batches
from exporter.data.images import ImageFolder
from exporter.evaluation.accuracy import Accuracy, accuracy
from exporter.evaluation.benchmark import Comparison, Throughput, compare_speed, throughput
from exporter.evaluation.benchmark.batch_sweep import resized
from exporter.evaluation.parity import ParityReport
from exporter.evaluation.parity.check_model import check
from exporter.evaluation.parity.reference import patches_left_of
from exporter.pruning.pruned_vit import PrunedViT
from exporter.records import Pair
from exporter.runtimes.base import Runner
from exporter.runtimes.choice import on_this_cpu, runner_for
from exporter.schedule.usage import PatchUse, patch_use
from exporter.targets import Target
from exporter.tensor_names import IMAGES
from exporter.workflows.progress import Stages
from exporter.workflows.recipe import Recipe

__all__ = ["Proof", "Side", "prove"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Side:
    """The dense or the pruned model: its reference, what it was lowered to, and where that lies."""

    reference: PrunedViT
    model: onnx.ModelProto
    path: Path
    target: Target

    def runner(self, threads: int) -> Runner:
        """The file on its target's runtime."""
        return runner_for(self.path, self.target, on_this_cpu(self.target, threads))


@dataclass(frozen=True)
class Proof:
    """All that was measured. `accuracy` is None without labels, the times are None where none were asked for.

    `use` is what a-STAR left of the images, None under STAR, whose counts are the schedule's.
    """

    parity: ParityReport
    dense_parity: ParityReport
    accuracy: Pair[Accuracy] | None
    throughput: Pair[Throughput] | None
    comparison: Comparison | None
    use: PatchUse | None

    @property
    def passed(self) -> bool:
        """Whether both lowered models are their PyTorch references."""
        return self.parity.passed and self.dense_parity.passed


def prove(pair: Pair[Side], folder: ImageFolder, images: Array, recipe: Recipe, stages: Stages) -> Proof:
    """Compare both models with their references, then with each other.

    Args:
        pair: Both models.
        folder: Images for accuracy; it is measured where each has a label.
        images: [n, 3, H, W] for parity and speed, as the models take them.
        recipe: Says on how many threads, in which batches, for how many rounds.
        stages: Shows where the job is.
    """
    with stages.stage("parity, dense"):
        dense_parity = _parity(pair.dense, images, recipe)
    with stages.stage("parity, pruned"):
        parity = _parity(pair.pruned, images, recipe)
    use = None
    if pair.pruned.reference.schedule.adaptive:
        with stages.stage("patches left"):
            use = _use(pair.pruned.reference, images, recipe)
    accuracies = None
    if folder.labelled:
        with stages.stage("accuracy"):
            accuracies = Pair(*(_accuracy(side, folder, recipe) for side in (pair.dense, pair.pruned)))
    times, comparison = None, None
    if recipe.rounds:
        with stages.stage("throughput"):
            times, comparison = _speed(pair, images, recipe, _macs(pair, use))
    return Proof(parity, dense_parity, accuracies, times, comparison, use)


def _parity(side: Side, images: Array, recipe: Recipe) -> ParityReport:
    dtype, threads = recipe.input_kind, recipe.threads
    return check(side.reference, side.model, images, input_kind=dtype, threads=threads, target=side.target)


def _accuracy(side: Side, folder: ImageFolder, recipe: Recipe) -> Accuracy:
    preprocessing = side.reference.vit.spec.preprocessing
    return accuracy(
        side.runner(recipe.threads), batches(folder.files, preprocessing, recipe.input_kind, recipe.batch)
    )


def _speed(
    pair: Pair[Side], images: Array, recipe: Recipe, macs: tuple[float, float]
) -> tuple[Pair[Throughput], Comparison]:
    feed = {IMAGES: resized(images, recipe.batch)}
    runners = {"dense": pair.dense.runner(recipe.threads), "pruned": pair.pruned.runner(recipe.threads)}
    times = throughput(runners, feed, batch=recipe.batch, rounds=recipe.rounds)
    both = Pair(times["dense"], times["pruned"])
    return both, compare_speed(both.dense, both.pruned, macs)


def _macs(pair: Pair[Side], use: PatchUse | None) -> tuple[float, float]:
    """Useful multiply-adds of an image of each model."""
    dense, pruned = (side.reference.macs.total for side in (pair.dense, pair.pruned))
    return float(dense), float(pruned if use is None else use.useful_macs)


def _use(pruned: PrunedViT, images: Array, recipe: Recipe) -> PatchUse:
    left = patches_left_of(pruned, images, recipe.input_kind, recipe.batch)
    return patch_use(pruned.vit.spec, pruned.schedule, left, pruned.layout, recipe.batch)
