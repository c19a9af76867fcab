"""Compare both models of a compilation with PyTorch, and measure their accuracy and speed."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from exporter.artefact import LoweredFile
from exporter.data.batches import View, batches_of
from exporter.data.images import ImageFile, ImageFolder
from exporter.evaluation.accuracy import Accuracy, Batches, predict_each
from exporter.evaluation.benchmark import Comparison, Throughput
from exporter.evaluation.benchmark.batch_sweep import AtBatch, BenchModels, BenchSettings, measure_batches
from exporter.evaluation.embeddings import Agreement, agreement_of, embed_each
from exporter.evaluation.loss import PairResult, compare_predictions
from exporter.evaluation.parity import ParityReport
from exporter.evaluation.parity.check_model import check, load_onnx
from exporter.evaluation.parity.reference import patches_left_of
from exporter.evaluation.report.record import Example, chosen_examples
from exporter.pruning.pruned_vit import PrunedViT
from exporter.records import Pair
from exporter.runtimes.base import Runner
from exporter.runtimes.choice import on_this_cpu, runner_for
from exporter.schedule.macs import MacCount, PatchUse, patch_use
from exporter.vocabulary import InputKind
from exporter.workflows.progress import Stages
from exporter.workflows.recipe import Measuring

__all__ = ["Proof", "macs_of", "prove"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Proof:
    """All results; times are None if no rounds were requested.

    `accuracy` is None without labels or logits. `agreement`, of the pruned model's embeddings with the dense one's,
    is None without an embedding.

    `use` is how many patches a-STAR kept; None under STAR, whose counts are in the schedule. `batches` are the
    times at all batch sizes, `throughput` and `comparison` those at the one of the settings. `pair` compares the
    classes of both models, and `examples` are some of the images; without logits there are neither. `skipped` says
    why an image of accuracy or agreement could not be read, by its name.
    """

    parity: ParityReport
    dense_parity: ParityReport
    accuracy: Pair[Accuracy] | None
    agreement: Agreement | None
    throughput: Pair[Throughput] | None
    comparison: Comparison | None
    use: PatchUse | None
    batches: tuple[AtBatch, ...]
    pair: PairResult | None
    examples: tuple[Example, ...]
    skipped: dict[str, str]

    @property
    def passed(self) -> bool:
        """Whether both lowered models passed the parity check."""
        return self.parity.passed and self.dense_parity.passed


def prove(
    references: Pair[PrunedViT],
    models: Pair[LoweredFile],
    *,
    folder: ImageFolder | None,
    images: Array,
    measuring: Measuring,
    stages: Stages,
) -> Proof:
    """Compare both models with their references, then with each other.

    Args:
        references: Both models in PyTorch.
        models: The lowered models.
        folder: Images for accuracy, which is measured if all have labels; without, the models are compared. None
            where there are only images to check.
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
    seen, skipped = _Seen(None, None, ()), dict[str, str]()
    if folder is not None and references.dense.vit.spec.num_classes:
        with stages.stage("accuracy" if folder.labelled else "agreement of classes"):
            seen = _seen(models, folder, measuring, skipped)
    agreement = None
    if folder is not None and references.dense.vit.spec.embedding:
        with stages.stage("agreement of embeddings"):
            agreement = _agreement(models, folder, measuring, skipped)
    at_batches: tuple[AtBatch, ...] = ()
    if measuring.rounds:
        with stages.stage("throughput"):
            at_batches = _speed(models, images, measuring, macs_of(references, use))
    own = next((each for each in at_batches if each.batch == measuring.batch), None)
    return Proof(
        parity,
        dense_parity,
        **vars(seen),
        agreement=agreement,
        throughput=None if own is None else own.throughput,
        comparison=None if own is None else own.comparison,
        use=use,
        batches=at_batches,
        skipped=skipped,
    )


def macs_of(references: Pair[PrunedViT], use: PatchUse | None) -> Pair[MacCount]:
    """Return the useful MACs per image of each model; under a-STAR the mean of `use`."""
    pruned = references.pruned.macs
    if use is not None:
        pruned = MacCount(use.useful_macs - use.scoring_macs, use.scoring_macs)
    return Pair(references.dense.macs, pruned)


def _parity(reference: PrunedViT, model: LoweredFile, images: Array, measuring: Measuring) -> ParityReport:
    return check(reference, load_onnx(model.path), images, threads=measuring.threads)


@dataclass(frozen=True)
class _Seen:
    """What both models say about the images."""

    accuracy: Pair[Accuracy] | None
    pair: PairResult | None
    examples: tuple[Example, ...]


def _seen(
    models: Pair[LoweredFile], folder: ImageFolder, measuring: Measuring, skipped: dict[str, str]
) -> _Seen:
    names: list[str] = []
    loaded = _batches(models, folder, measuring, names=names, skipped=skipped)
    found = Pair(*predict_each(_runners(models, measuring), loaded))
    pair = compare_predictions(found.dense, found.pruned, ("dense", "pruned"), {})
    accuracy = Pair(found.dense.accuracy, found.pruned.accuracy) if found.dense.labelled else None
    return _Seen(accuracy, replace(pair, classes=()), chosen_examples(names, found))


def _agreement(
    models: Pair[LoweredFile], folder: ImageFolder, measuring: Measuring, skipped: dict[str, str]
) -> Agreement:
    name = models.dense.artefact.spec.embedding
    loaded = _batches(models, folder, measuring, names=[], skipped=skipped)
    return agreement_of(*embed_each(_runners(models, measuring), loaded, (name, name)))


def _runners(models: Pair[LoweredFile], measuring: Measuring) -> tuple[Runner, Runner]:
    dense, pruned = (_runner(each, measuring.threads) for each in (models.dense, models.pruned))
    return dense, pruned


def _batches(
    models: Pair[LoweredFile],
    folder: ImageFolder,
    measuring: Measuring,
    *,
    names: list[str],
    skipped: dict[str, str],
) -> Batches:
    """Yield the images for one pass of both models, which take them alike; note names, and what is skipped."""
    artefact = models.dense.artefact
    view = View(artefact.spec.preprocessing, artefact.input_kind)
    for batch in batches_of(folder.files, [view], measuring.batch):
        skipped.update({folder.name_of(ImageFile(each.path, None)): each.reason for each in batch.skipped})
        if batch.files:
            names += map(folder.name_of, batch.files)
            yield (batch.views[0], batch.views[0]), batch.labels


def _speed(
    models: Pair[LoweredFile], images: Array, measuring: Measuring, macs: Pair[MacCount]
) -> tuple[AtBatch, ...]:
    sizes = tuple(sorted({measuring.batch, *measuring.more_batches}))
    both = BenchModels(*_runners(models, measuring), None, macs)
    settings = BenchSettings(batches=sizes, rounds=measuring.rounds)
    return tuple(measure_batches(both, images, settings))


def _runner(model: LoweredFile, threads: int) -> Runner:
    """Return a runner of the file on its target's runtime."""
    target = model.artefact.target
    return runner_for(model.path, target, on_this_cpu(target, threads))


def _use(pruned: PrunedViT, images: Array, input_kind: InputKind, batch: int) -> PatchUse:
    left = patches_left_of(pruned, images, input_kind, batch)
    return patch_use(pruned.vit.spec, pruned.schedule, left, pruned.layout, batch)
