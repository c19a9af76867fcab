"""Compile a trained ViT: prune and export it, compare it with PyTorch, measure it, and write the export folder."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from exporter.artefact import LoweredFile, read_pair
from exporter.calibration.calibrate import sums_path
from exporter.calibration.record import Calibration
from exporter.data.batches import first_images
from exporter.data.images import ImageFolder, sample
from exporter.evaluation.benchmark.timing import TradeOff
from exporter.evaluation.parity.reference import reference_runner
from exporter.evaluation.report.record import Report
from exporter.files import PathLike, writable_folder
from exporter.formats.canonical_json import save_json
from exporter.lowering.pipeline import save_onnx
from exporter.lowering.variants import save_variants
from exporter.models.base import PrunableViT
from exporter.pruning.pruned_vit import PrunedViT
from exporter.records import ModelSpec, Pair
from exporter.workflows import steps
from exporter.workflows.compiling.proof import prove, save_page_of
from exporter.workflows.compiling.schedule import checked_amount, schedule_of
from exporter.workflows.dry_run import DryRun, dry_run
from exporter.workflows.folders.export_folder import (
    CALIBRATION,
    MODEL,
    RECIPE,
    REPORT,
    SCHEDULE,
    finish_folder,
    save_raw_images,
)
from exporter.workflows.folders.reference import REFERENCE, save_reference
from exporter.workflows.measuring import noise
from exporter.workflows.memory import check_batches
from exporter.workflows.progress import Silent, Stages
from exporter.workflows.recipes.job import Job
from exporter.workflows.recipes.recipe import Recipe
from exporter.workflows.recipes.requests import Lowering
from exporter.workflows.recipes.resolve import resolve

__all__ = ["compile_model", "dry_compile"]

Array = np.ndarray[Any, Any]


def compile_model(
    recipe: Recipe,
    out: PathLike,
    model: PrunableViT | nn.Module | None = None,
    stages: Stages | None = None,
    *,
    trade_off: TradeOff | None = None,
) -> Report:
    """Calibrate, plan, prune, lower, compare and measure; write the export folder to `out`.

    Args:
        recipe: The settings of the compilation.
        out: The folder; files of an earlier compilation in it are replaced one by one, and what it leaves over is
            removed.
        model: A ViT to use instead of the recipe's: an adapter, or a timm module.
        stages: Shows progress.
        trade_off: What a search measured, to be shown in the report in place of the two models alone.

    Returns:
        The report; `report.passed` says whether both models passed the parity check.

    Raises:
        UserError: The recipe cannot be carried out.
    """
    stages, out, job = stages or Silent(), Path(out), resolve(recipe)
    amount = checked_amount(job)
    steps.warn_where_slow(job.lowering.target)
    whole, vit, folder = _opened(job, out, model, stages)
    calibration = _calibrated(whole, job, out, stages) if job.reads_calibration else None
    if calibration is not None:
        calibration = calibration.of_first(vit.spec.depth)
    lowering, images = job.lowering, _images(folder, vit.spec, job)
    schedule = schedule_of(vit, calibration, amount=amount, job=job, stages=stages)
    steps.warn_where_unsettled(schedule, calibration)
    references = Pair(steps.dense(vit), steps.prune(vit, schedule, calibration, lowering.layout))
    ranges = steps.range_images(job.images, vit.spec, lowering.input_kind, lowering.target)
    paths = (_lowered(each, lowering, ranges, out, stages) for each in (references.dense, references.pruned))
    models = read_pair(Pair(*paths))
    report = prove(
        references,
        models,
        calibration=calibration,
        folder=folder,
        images=images,
        measuring=job.measuring,
        stages=stages,
    )
    report = replace(report, searched=trade_off)
    with stages.stage("report"):
        save_json(recipe, out / RECIPE)
        names = _deliver(references, models, images, job.measuring.batch, out)
        save_json(report, out / REPORT)
        page = save_page_of(report, models.pruned.artefact, references.pruned, folder, out)
        _finish(job, out, [*report.files.values(), REPORT, *names, *page])
    return report


def dry_compile(recipe: Recipe, out: PathLike) -> DryRun:
    """Check what `compile_model` checks before its first step, weights included; nothing is written.

    Raises:
        UserError: The recipe cannot be carried out.
    """
    job = resolve(recipe)
    checked_amount(job)
    whole, _, _ = _opened(job, Path(out), None, Silent())
    return dry_run(whole, job, recipe)


def _opened(
    job: Job, out: Path, model: PrunableViT | nn.Module | None, stages: Stages
) -> tuple[PrunableViT, PrunableViT, ImageFolder | None]:
    """Return the model, the part of it that gives the outputs, and the images to measure on."""
    writable_folder(out)
    with stages.stage("model"):
        whole = steps.load_model(job.model, job.device, model)
        vit, _ = steps.with_outputs(whole, job.outputs)
        check_batches("--batch", (job.measuring.batch, *job.measuring.more_batches), vit.spec)
        if job.on_noise:
            check_batches("check_images", (job.images.check_images,), vit.spec)
        return whole, vit, None if job.on_noise else steps.eval_images(job.images, vit.spec)


def _calibrated(vit: PrunableViT, job: Job, out: Path, stages: Stages) -> Calibration:
    with stages.stage("calibration") as advance:
        return steps.calibrate(vit, job.calibration, job.images, out / CALIBRATION, advance, keep_sums=True)


def _finish(job: Job, out: Path, names: list[str]) -> None:
    """Make the folder whole: without it, the next call continues."""
    made = [CALIBRATION] if job.reads_calibration and not job.calibration.exists else []
    finish_folder(out, [*names, *made], job.calibration.path)
    sums_path(out / CALIBRATION).unlink(missing_ok=True)


def _images(folder: ImageFolder | None, spec: ModelSpec, job: Job) -> Array:
    """Return the images to compare on, [n, 3, H, W] as the models take them; noise where there is no folder."""
    count, seed, kind = job.images.check_images, job.images.seed, job.lowering.input_kind
    if folder is None:
        return noise(spec, kind, count, seed)
    return first_images(sample(folder, count, seed).files, spec.preprocessing, kind, count)


def _deliver(
    references: Pair[PrunedViT], models: Pair[LoweredFile], images: Array, batch: int, out: Path
) -> list[str]:
    """Write what a deployment machine needs beside both models; return the file names."""
    pruned, input_kind = references.pruned, models.pruned.artefact.input_kind
    runner, dense = (reference_runner(each, input_kind) for each in (pruned, references.dense))
    save_reference(runner, dense, images, out / REFERENCE)
    save_json(pruned.schedule, out / SCHEDULE)
    save_json(pruned.vit.spec, out / MODEL)
    variants = save_variants(models.pruned.path)
    raw = save_raw_images(images, sorted({1, batch}), out)
    return [REFERENCE, SCHEDULE, MODEL, RECIPE, *variants.values(), *raw]


def _lowered(
    reference: PrunedViT, lowering: Lowering, ranges: Array | None, out: Path, stages: Stages
) -> Path:
    with stages.stage(f"lowering, {reference.method}"):
        path = out / lowering.target.file_name(reference.vit.spec.name, reference.method)
        save_onnx(steps.export(reference, lowering, ranges), path)
    return path
