"""Compare both models of a compilation with PyTorch, and measure their accuracy and speed."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from exporter.artefact import LoweredFile
from exporter.data.batches import batches
from exporter.data.images import ImageFolder
from exporter.evaluation.accuracy import Accuracy, predict_each
from exporter.evaluation.answers import Batches
from exporter.evaluation.benchmark import Comparison, Throughput, compare_speed, throughput
from exporter.evaluation.benchmark.batch_sweep import resized
from exporter.evaluation.embeddings import Agreement, agreement_of, embed_each
from exporter.evaluation.parity import ParityReport
from exporter.evaluation.parity.check_model import check, load_onnx
from exporter.evaluation.parity.reference import patches_left_of
from exporter.pruning.pruned_vit import PrunedViT
from exporter.records import Pair
from exporter.runtimes.base import Runner
from exporter.runtimes.choice import on_this_cpu, runner_for
from exporter.schedule.usage import PatchUse, patch_use
from exporter.tensor_names import IMAGES
from exporter.vocabulary import InputKind
from exporter.workflows.progress import Stages
from exporter.workflows.requests import Measuring

__all__ = ["Proof", "prove"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Proof:
    """All results; times are None if no rounds were requested.

    `accuracy` is None without labels or logits. `agreement`, of the pruned model's embeddings with the dense one's,
    is None without an embedding.

    `use` is how many patches a-STAR kept; None under STAR, whose counts are in the schedule.
    """

    parity: ParityReport
    dense_parity: ParityReport
    accuracy: Pair[Accuracy] | None
    agreement: Agreement | None
    throughput: Pair[Throughput] | None
    comparison: Comparison | None
    use: PatchUse | None

    @property
    def passed(self) -> bool:
        """Whether both lowered models passed the parity check."""
        return self.parity.passed and self.dense_parity.passed


def prove(
    references: Pair[PrunedViT],
    models: Pair[LoweredFile],
    *,
    folder: ImageFolder,
    images: Array,
    measuring: Measuring,
    stages: Stages,
) -> Proof:
    """Compare both models with their references, then with each other.

    Args:
        references: Both models in PyTorch.
        models: The lowered models.
        folder: Images for accuracy, which is measured if all have labels.
        images: [n, 3, H, W] for parity and speed, as the models take them.
        measuring: Threads, batch and rounds.
        stages: Shows progress.
    """
    with stages.stage("parity, dense"):
        dense_parity = _parity(references.dense, models.dense, images, measuring)
    with stages.stage("parity, pruned"):
        parity = _parity(references.pruned, models.pruned, images, measuring)
    use = None
    if references.pruned.schedule.adaptive:
        with stages.stage("patches left"):
            use = _use(references.pruned, images, models.pruned.artefact.input_kind, measuring.batch)
    accuracies = None
    if folder.labelled and references.dense.vit.spec.num_classes:
        with stages.stage("accuracy"):
            accuracies = _accuracies(models, folder, measuring)
    agreement = None
    if references.dense.vit.spec.embedding:
        with stages.stage("agreement of embeddings"):
            agreement = _agreement(models, folder, measuring)
    times, comparison = None, None
    if measuring.rounds:
        with stages.stage("throughput"):
            times, comparison = _speed(models, images, measuring, _macs(references, use))
    return Proof(parity, dense_parity, accuracies, agreement, times, comparison, use)


def _parity(reference: PrunedViT, model: LoweredFile, images: Array, measuring: Measuring) -> ParityReport:
    return check(reference, load_onnx(model.path), images, threads=measuring.threads)


def _accuracies(models: Pair[LoweredFile], folder: ImageFolder, measuring: Measuring) -> Pair[Accuracy]:
    found = predict_each(_runners(models, measuring), _batches(models, folder, measuring))
    return Pair(*(each.accuracy for each in found))


def _agreement(models: Pair[LoweredFile], folder: ImageFolder, measuring: Measuring) -> Agreement:
    name = models.dense.artefact.spec.embedding
    runners, loaded = _runners(models, measuring), _batches(models, folder, measuring)
    return agreement_of(*embed_each(runners, loaded, (name, name)))


def _runners(models: Pair[LoweredFile], measuring: Measuring) -> tuple[Runner, Runner]:
    dense, pruned = (_runner(each, measuring.threads) for each in (models.dense, models.pruned))
    return dense, pruned


def _batches(models: Pair[LoweredFile], folder: ImageFolder, measuring: Measuring) -> Batches:
    """Yield the images for one pass of both models, which take them alike."""
    artefact = models.dense.artefact
    loaded = batches(folder.files, artefact.spec.preprocessing, artefact.input_kind, measuring.batch)
    return (((images, images), labels) for images, labels in loaded)


def _speed(
    models: Pair[LoweredFile], images: Array, measuring: Measuring, macs: tuple[float, float]
) -> tuple[Pair[Throughput], Comparison]:
    feed = {IMAGES: resized(images, measuring.batch)}
    runners = {role: _runner(getattr(models, role), measuring.threads) for role in ("dense", "pruned")}
    times = throughput(runners, feed, batch=measuring.batch, rounds=measuring.rounds)
    both = Pair(times["dense"], times["pruned"])
    return both, compare_speed(both.dense, both.pruned, macs)


def _runner(model: LoweredFile, threads: int) -> Runner:
    """Return a runner of the file on its target's runtime."""
    target = model.artefact.target
    return runner_for(model.path, target, on_this_cpu(target, threads))


def _macs(references: Pair[PrunedViT], use: PatchUse | None) -> tuple[float, float]:
    """Return the useful MACs per image of each model."""
    dense, pruned = (each.macs.total for each in (references.dense, references.pruned))
    return float(dense), float(pruned if use is None else use.useful_macs)


def _use(pruned: PrunedViT, images: Array, input_kind: InputKind, batch: int) -> PatchUse:
    left = patches_left_of(pruned, images, input_kind, batch)
    return patch_use(pruned.vit.spec, pruned.schedule, left, pruned.layout, batch)
