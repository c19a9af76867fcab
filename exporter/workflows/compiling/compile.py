"""Compile a trained ViT: prune and export it, compare it with PyTorch, measure it, and write the export folder."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from exporter.artefact import LoweredFile, read_pair
from exporter.calibration.calibrate import sums_path
from exporter.calibration.record import Calibration
from exporter.data.batches import first_images
from exporter.data.images import ImageFolder, sample
from exporter.errors import RecipeError
from exporter.evaluation.benchmark.timing import TradeOff
from exporter.evaluation.parity.reference import reference_runner
from exporter.evaluation.report.record import Report
from exporter.files import PathLike, writable_folder
from exporter.formats.canonical_json import save_json
from exporter.lowering.pipeline import lower, save_onnx
from exporter.lowering.variants import save_variants
from exporter.pruning.pruned_vit import PrunedViT
from exporter.records import Pair
from exporter.schedule.methods import SEARCH
from exporter.workflows import steps
from exporter.workflows.compiling.proof import prove, save_page_of
from exporter.workflows.folders.export_folder import (
    CALIBRATION,
    MODEL,
    RECIPE,
    REFERENCE,
    REPORT,
    SCHEDULE,
    finish_folder,
    save_raw_images,
    save_reference,
)
from exporter.workflows.measuring import noise, warn_where_slow
from exporter.workflows.opened import (
    A_FOLDER,
    DryRun,
    Opened,
    dry_run,
    open_recipe,
    warn_where_unsettled,
)
from exporter.workflows.progress import Silent, Stages
from exporter.workflows.recipe import Images, Lowering, Recipe, check_batches, needed
from exporter.workflows.steps import OwnModel

__all__ = ["compile_model", "dry_compile"]

Array = np.ndarray[Any, Any]

logger = logging.getLogger(__name__)


def compile_model(
    recipe: Recipe,
    out: PathLike,
    model: OwnModel | None = None,
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
    stages, out = stages or Silent(), Path(out)
    opened = open_recipe(recipe, stages, model)
    _check(opened, out)
    lowering, measuring = opened.recipe.lower, opened.recipe.measure
    warn_where_slow(lowering.row)
    vit, folder = opened.vit, None if opened.on_noise else opened.evaluated
    calibration = _calibration(opened, out)
    images = _images(opened, folder)
    schedule = opened.schedule(vit, calibration)
    warn_where_unsettled(schedule, calibration)
    references = Pair(steps.dense(vit), steps.prune(vit, schedule, calibration, lowering.laid_out))
    ranges = opened.ranges(lowering.row)
    paths = (_lowered(each, lowering, ranges, out, stages) for each in (references.dense, references.pruned))
    models = read_pair(Pair(*paths))
    report = prove(
        references,
        models,
        calibration=calibration,
        folder=folder,
        images=images,
        measuring=measuring,
        stages=stages,
    )
    report = replace(report, searched=trade_off)
    with stages.stage("report"):
        save_json(recipe, out / RECIPE)
        names = _deliver(references, models, images, measuring.batch, out)
        save_json(report, out / REPORT)
        page = save_page_of(report, models.pruned.artefact, references.pruned, folder, out)
        _finish(opened, out, [*report.files.values(), REPORT, *names, *page])
    return report


def dry_compile(recipe: Recipe, out: PathLike) -> DryRun:
    """Check what `compile_model` checks before its first step, weights included; nothing is written.

    Raises:
        UserError: The recipe cannot be carried out.
    """
    opened = open_recipe(recipe)
    _check(opened, Path(out))
    if not opened.on_noise:
        _ = opened.evaluated
    return dry_run(opened, recipe)


def _check(opened: Opened, out: Path) -> None:
    """Check that everything that the compilation needs is given, then the folder, then the memory for batches.

    Raises:
        RecipeError: The amount is missing, or images or a calibration that are needed; or a batch is too large.
        OutputError: The folder cannot be written.
    """
    opened.check_amount("compile")
    images, measuring, prune = opened.recipe.images, opened.recipe.measure, opened.recipe.prune
    if opened.on_noise:
        _check_noise(images)
    else:
        needed(images.eval_images or images.images, "--images", A_FOLDER)
    opened.check_ranges()
    if opened.reads_calibration and not opened.has_calibration:
        needed(images.images, "--images", A_FOLDER)
    if prune.counts_on_images:
        needed(images.images, "--images", f"{A_FOLDER}: the MACs of a-star depend on them")
    if prune.counted_by == SEARCH:
        needed(images.images, "--images", f"{A_FOLDER}, to search counts on")
    if opened.given is not None and not prune.has_number and opened.given.inter_sha256:
        known = opened.has_calibration or None
        needed(known, "--calibration", "the calibration that the schedule was made with")
    writable_folder(out)
    check_batches("--batch", (measuring.batch, *measuring.more_batches), opened.vit.spec)
    if opened.on_noise:
        check_batches("check_images", (images.check_images,), opened.vit.spec)


def _check_noise(images: Images) -> None:
    """Warn that noise is measured on; RecipeError where a setting asks for what only images can tell."""
    if images.class_map is not None:
        raise RecipeError("--class-map", "no images", "--images beside it, whose accuracy it asks for")
    logger.warning(
        "no images: agreement with PyTorch and speed are measured on noise, not on photos; accuracy is not "
        "measured, and no picture is drawn (--images DIR)"
    )


def _calibration(opened: Opened, out: Path) -> Calibration | None:
    """Return the calibration of the layers that the outputs need; None where none is read."""
    if not opened.reads_calibration:
        return None
    return opened.calibrate(out / CALIBRATION, keep_sums=True).of_first(opened.vit.spec.depth)


def _finish(opened: Opened, out: Path, names: list[str]) -> None:
    """Make the folder whole: without it, the next call continues."""
    made = [CALIBRATION] if opened.reads_calibration and not opened.has_calibration else []
    finish_folder(out, [*names, *made], opened.recipe.prune.calibration)
    sums_path(out / CALIBRATION).unlink(missing_ok=True)


def _images(opened: Opened, folder: ImageFolder | None) -> Array:
    """Return the images to compare on, [n, 3, H, W] as the models take them; noise where there is no folder."""
    images, kind, spec = opened.recipe.images, opened.recipe.lower.input_kind, opened.vit.spec
    count, seed = images.check_images, images.seed
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
        path = out / lowering.row.file_name(reference.vit.spec.name, reference.method)
        save_onnx(lower(reference, lowering.row, lowering.input_kind, ranges), path)
    return path
