"""Compare both models of a compilation with PyTorch, measure their accuracy and speed, and show it on a page."""

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from exporter.artefact import Artefact, LoweredFile
from exporter.calibration.record import Calibration
from exporter.data.batches import View, batches_of, first_images
from exporter.data.images import ImageFile, ImageFolder
from exporter.evaluation.accuracy import Accuracy, Batches, predict_each
from exporter.evaluation.batch_sweep import AtBatch, BenchSettings, measure_batches
from exporter.evaluation.benchmark import environment
from exporter.evaluation.loss import Agreement, PairResult, agreement_of, compare_predictions, embed_each
from exporter.evaluation.parity.checks import ParityReport
from exporter.evaluation.parity.reference import check, load_onnx, patches_left_of, reference_runner
from exporter.evaluation.report.page import Picture, drawn, save_page
from exporter.evaluation.report.record import CalibratedOn, Example, Gmacs, Report, chosen_examples
from exporter.pruning.pruned_vit import PrunedViT
from exporter.records import Pair
from exporter.runtimes.base import Runner
from exporter.runtimes.choice import runner_here
from exporter.schedule.macs import MacCount, PatchUse, dense_macs, patch_use
from exporter.tensor_names import IMAGES
from exporter.vocabulary import InputKind
from exporter.workflows.folders.export_folder import PAGE
from exporter.workflows.progress import Stages
from exporter.workflows.recipe import Measuring
from exporter.workflows.steps import with_class_names

__all__ = ["prove", "save_page_of"]

Array = np.ndarray[Any, Any]

# Images that are shown of a model without classes.
FIRST = 4


def prove(
    references: Pair[PrunedViT],
    models: Pair[LoweredFile],
    *,
    calibration: Calibration | None,
    folder: ImageFolder | None,
    images: Array,
    measuring: Measuring,
    stages: Stages,
) -> Report:
    """Compare both models with their references, then with each other; return the report.

    Args:
        references: Both models in PyTorch.
        models: The lowered models.
        calibration: What the schedule was made from, if anything.
        folder: Images for accuracy, which is measured if all have labels; without, the models are compared. None
            where there are only images to check: noise.
        images: [n, 3, H, W] for parity and speed, as the models take them.
        measuring: Threads, batch and rounds.
        stages: Shows progress.
    """
    pruned, artefact, skipped = references.pruned, models.pruned.artefact, dict[str, str]()
    with stages.stage("parity, dense"):
        dense_parity = _parity(references.dense, models.dense, images, measuring)
    with stages.stage("parity, pruned"):
        parity = Pair(dense_parity, _parity(pruned, models.pruned, images, measuring))
    use = None
    if pruned.schedule.adaptive:
        with stages.stage("patches left"):
            use = _use(pruned, images, artefact.input_kind, measuring.batch)
    seen, agreement, batches = _Classes(None, None, ()), None, tuple[AtBatch, ...]()
    if folder is not None and pruned.vit.spec.num_classes:
        with stages.stage("accuracy" if folder.labelled else "agreement of classes"):
            seen = _classes(models, folder, measuring, skipped)
    if folder is not None and pruned.vit.spec.embedding:
        with stages.stage("agreement of embeddings"):
            agreement = _agreement(models, folder, measuring, skipped)
    macs = _macs(references, use)
    if measuring.rounds:
        with stages.stage("throughput"):
            batches = _speed(models, images, measuring, macs)
    files = {"dense": models.dense.path, "pruned": models.pruned.path}
    return Report(
        model=pruned.vit.spec.name,
        target=artefact.target.name,
        schedule=pruned.schedule,
        files={role: path.name for role, path in files.items()},
        file_bytes={role: path.stat().st_size for role, path in files.items()},
        gmacs=Gmacs(
            macs.dense.gmacs,
            macs.pruned.gmacs,
            scoring=macs.pruned.scoring / 1e9,
            as_it_came=dense_macs(pruned.vit.spec.as_it_came).gmacs,
        ),
        parity=parity,
        hardware=environment(measuring.threads, installed=True),
        batch=measuring.batch,
        batches=batches,
        **seen._asdict(),
        agreement=agreement,
        use=use,
        calibration=None if calibration is None else _calibrated_on(calibration),
        class_names=with_class_names(pruned.vit, folder).spec.class_names,
        measured_on="noise" if folder is None else "images",
        skipped=skipped,
    )


def _calibrated_on(calibration: Calibration) -> CalibratedOn:
    record = calibration.record
    return CalibratedOn(
        record.images, record.skipped, calibration.overlap_by_layer, dict(calibration.skipped)
    )


def _macs(references: Pair[PrunedViT], use: PatchUse | None) -> Pair[MacCount]:
    """Return the useful MACs per image of each model; under a-STAR the mean of `use`."""
    pruned = references.pruned.macs
    if use is not None:
        pruned = MacCount(use.useful_macs - use.scoring_macs, use.scoring_macs)
    return Pair(references.dense.macs, pruned)


def _parity(reference: PrunedViT, model: LoweredFile, images: Array, measuring: Measuring) -> ParityReport:
    return check(reference, load_onnx(model.path), images, threads=measuring.threads)


class _Classes(NamedTuple):
    """What both models say about the images."""

    accuracy: Pair[Accuracy] | None
    pair: PairResult | None
    examples: tuple[Example, ...]


def _classes(
    models: Pair[LoweredFile], folder: ImageFolder, measuring: Measuring, skipped: dict[str, str]
) -> _Classes:
    names: list[str] = []
    loaded = _batches(models, folder, measuring, names=names, skipped=skipped)
    found = Pair(*predict_each(_runners(models, measuring), loaded))
    pair = compare_predictions(found.dense, found.pruned, ("dense", "pruned"), {})
    accuracy = Pair(found.dense.accuracy, found.pruned.accuracy) if found.dense.labelled else None
    return _Classes(accuracy, replace(pair, classes=()), chosen_examples(names, found))


def _agreement(
    models: Pair[LoweredFile], folder: ImageFolder, measuring: Measuring, skipped: dict[str, str]
) -> Agreement:
    name = models.dense.artefact.spec.embedding
    loaded = _batches(models, folder, measuring, names=[], skipped=skipped)
    return agreement_of(*embed_each(_runners(models, measuring), loaded, (name, name)))


def _runners(models: Pair[LoweredFile], measuring: Measuring) -> tuple[Runner, Runner]:
    dense, pruned = (
        runner_here(each.path, each.artefact.target, measuring.threads)
        for each in (models.dense, models.pruned)
    )
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
    dense, pruned = _runners(models, measuring)
    settings = BenchSettings(batches=sizes, rounds=measuring.rounds)
    return tuple(measure_batches({"dense": dense, "pruned": pruned}, macs, images, settings))


def _use(pruned: PrunedViT, images: Array, input_kind: InputKind, batch: int) -> PatchUse:
    left = patches_left_of(pruned, images, input_kind, batch)
    return patch_use(pruned.vit.spec, pruned.schedule, left, pruned.layout, batch)


def save_page_of(
    report: Report, artefact: Artefact, pruned: PrunedViT, folder: ImageFolder | None, out: Path
) -> list[str]:
    """Write the page, and return the names of its files.

    It shows examples with the patches that the PyTorch reference keeps of them, and a chart.

    Args:
        report: The record to show.
        artefact: What the pruned file says of itself.
        pruned: The PyTorch reference of the pruned model.
        folder: The images of the examples; None for a page without pictures.
        out: The export folder.

    Raises:
        OutputError: A file cannot be written.
    """
    chart = None
    if report.trade_off:
        from exporter.evaluation.report.chart import chart_of  # noqa: PLC0415  (matplotlib is slow to load)

        chart = chart_of(report.trade_off, report.model)
    pictures = [] if folder is None else _pictures(report, pruned, folder)
    save_page(report, artefact, out / PAGE, pictures=pictures, chart=chart)
    return [PAGE]


def _pictures(report: Report, pruned: PrunedViT, folder: ImageFolder) -> list[Picture]:
    """Draw the examples of the report; the first images where there are none."""
    named = {folder.name_of(file): file for file in folder.files}
    files, spec = [named[each.image] for each in report.examples], pruned.vit.spec
    images = first_images(files or folder.files, spec.preprocessing, "uint8", len(files) or FIRST)
    with reference_runner(pruned, "uint8") as runner:
        answers = runner.run({IMAGES: images})
    return drawn({**answers, IMAGES: images}, spec.grid)
