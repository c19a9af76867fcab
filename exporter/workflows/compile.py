"""Compile a trained ViT: prune and export it, compare it with PyTorch, measure it, and write the export folder."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from exporter.artefact import LoweredFile, read_pair
from exporter.calibration.calibrate import sums_path
from exporter.calibration.record import Calibration, save_calibration
from exporter.calibration.settings import CalibrationSettings
from exporter.data.batches import draw_images, noise
from exporter.data.images import ImageFolder
from exporter.errors import RecipeError
from exporter.evaluation.benchmark import TradeOff
from exporter.evaluation.loss import Tuned
from exporter.evaluation.parity.reference import reference_runner
from exporter.evaluation.report.page import Shown, save_comparison, save_page
from exporter.evaluation.report.record import Report
from exporter.files import PathLike, writable_folder
from exporter.formats.canonical_json import save_json
from exporter.lowering.pipeline import lower, save_onnx
from exporter.lowering.variants import save_variants
from exporter.models.base import PrunableViT
from exporter.models.identity import read_record
from exporter.pruning.checkpoint import TUNED
from exporter.pruning.pruned_vit import PrunedViT
from exporter.records import Gain, Pair
from exporter.tensor_names import Array
from exporter.vocabulary import Method
from exporter.workflows import steps
from exporter.workflows.folders.export_folder import (
    CALIBRATION,
    CHECKSUMS,
    MODEL,
    PAGE,
    RECIPE,
    REFERENCE,
    REPORT,
    SCHEDULE,
    finish_folder,
    read_checksums,
    save_raw_images,
    save_reference,
)
from exporter.workflows.opened import (
    A_FOLDER,
    DryRun,
    Opened,
    dry_run,
    open_recipe,
    settings_of,
    warn_of_few_images,
    warn_where_slow,
)
from exporter.workflows.progress import Silent, Stages
from exporter.workflows.proof import Made, pictures_of, prove
from exporter.workflows.recipe import Images, Lowering, Recipe, check_batches, needed
from exporter.workflows.steps import OwnModel

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
    stages = stages or Silent()
    opened = {Path(out): open_recipe(recipe, stages, model, refits=True)}
    ((report, _),) = _compiled([recipe], opened, stages, trade_off)
    return report


def compare_methods(
    recipe: Recipe,
    methods: Sequence[Method],
    out: PathLike,
    model: OwnModel | None = None,
    stages: Stages | None = None,
) -> dict[Method, Report]:
    """Compile a model once for each method, all measured in one run, and write one page that shows them all.

    Args:
        recipe: The settings of each compilation, but for the method.
        methods: Different ones.
        out: A folder: of the page, and of an export folder for each method, by its name. What an earlier
            compilation left in it is removed.
        model: As for `compile_model`.
        stages: Shows progress.

    Returns:
        The report of each method.

    Raises:
        UserError: One of them cannot be carried out. No model is written where a schedule cannot be made.
    """
    stages, out = stages or Silent(), Path(out)
    recipes, opened = _opened_each(recipe, methods, model, stages)
    every = dict(zip((out / each for each in methods), opened, strict=True))
    shown = _compiled(recipes, every, stages)
    with stages.stage("page"):
        made = {folder.name: each for folder, each in zip(every, shown, strict=True)}
        save_comparison(made, out / PAGE, page=PAGE)
        names = [PAGE]
        for folder in every:
            names += [f"{folder.name}/{each}" for each in (*read_checksums(folder), CHECKSUMS)]
        finish_folder(out, names, recipe.prune.calibration)
    return {method: report for method, (report, _) in zip(methods, shown, strict=True)}


def _opened_each(
    recipe: Recipe, methods: Sequence[Method], model: OwnModel | None, stages: Stages
) -> tuple[list[Recipe], list[Opened]]:
    """Return the recipe for each method, as it is and opened; the model is loaded once."""
    if len(set(methods)) < len(methods):
        raise RecipeError("--method", ",".join(methods), "each method once")
    if recipe.prune.schedule is not None:
        raise RecipeError(
            "--schedule", f"a file beside {len(methods)} methods", "one method: it has its own"
        )
    recipes = [recipe.but(prune={"method": each}) for each in methods]
    first, *others = (open_recipe(each, stages, model, refits=True) for each in recipes)
    return recipes, [first, *(replace(each, own=first.whole) for each in others)]


def _compiled(
    recipes: Sequence[Recipe],
    every: Mapping[Path, Opened],
    stages: Stages,
    trade_off: TradeOff | None = None,
) -> Sequence[Shown]:
    """Compile recipes that differ in their method alone, each into its folder; return what the pages show."""
    for out, opened in every.items():
        _check(opened, out)
    first = next(iter(every.values()))
    lowering, measuring = first.recipe.lower, first.recipe.measure
    warn_where_slow(lowering.row)
    tuned = read_record(first.recipe.model.checkpoint, TUNED, Tuned)
    folder = None if first.on_noise else first.evaluated
    vit = _named(first.vit, folder)
    calibrations = _calibrations(every)
    images, dense = _images(first, folder), steps.dense(vit)
    each_with_its = zip(every.values(), calibrations, strict=True)
    pruned, gains = zip(
        *(_pruned(opened, vit, own) for opened, own in each_with_its), strict=True
    )
    references = [Pair(dense, each) for each in pruned]
    models = _lowered(references, lowering, first.ranges(lowering.row), list(every), stages)
    made = list(map(Made, references, models, calibrations))
    reports = prove(made, folder=folder, images=images, measuring=measuring, stages=stages)
    with stages.stage("report"):
        pictures = pictures_of(reports, made, first.whole, folder)
        reports = [
            replace(each, searched=trade_off, tuned=tuned, refit=gain)
            for each, gain in zip(reports, gains, strict=True)
        ]
        shown = list(zip(reports, pictures, strict=True))
        for recipe, own, seen, (out, opened) in zip(
            recipes, made, shown, every.items(), strict=True
        ):
            names = _deliver(out, own, seen, images, recipe)
            if opened.reads_calibration and not opened.has_calibration:
                names.append(CALIBRATION)
            finish_folder(out, names, opened.recipe.prune.calibration)
            # Until here, the next call continues.
            sums_path(out / CALIBRATION).unlink(missing_ok=True)
    return shown


def dry_compile(recipe: Recipe, out: PathLike) -> DryRun:
    """Check what `compile_model` checks before its first step, weights included; nothing is written."""
    opened = open_recipe(recipe, refits=True)
    _check(opened, Path(out))
    if not opened.on_noise:
        _ = opened.evaluated
    return dry_run(opened, recipe)


def _check(opened: Opened, out: Path) -> None:
    """Check that everything that the compilation needs is given, then the folder, then the memory for batches."""
    opened.check_amount("compile")
    images, measuring = opened.recipe.images, opened.recipe.measure
    if opened.on_noise:
        _check_noise(images)
    else:
        needed(images.eval_images or images.images, "--images", A_FOLDER)
    opened.check_needs(opened.policy.needs)
    writable_folder(out)
    check_batches("--batch", (measuring.batch, *measuring.more_batches), opened.vit.spec)
    if opened.on_noise:
        check_batches("check_images", (images.check_images,), opened.vit.spec)


def _check_noise(images: Images) -> None:
    """Warn that noise is measured on; RecipeError where a setting asks for what only images can tell."""
    if images.class_map is not None:
        raise RecipeError(
            "--class-map", "no images", "--images beside it, whose accuracy it asks for"
        )
    logger.warning(
        "no images: agreement with PyTorch and speed are measured on noise, not on photos; accuracy is not "
        "measured, and no picture is drawn (--images DIR)"
    )


def _calibrations(every: Mapping[Path, Opened]) -> list[Calibration | None]:
    """Return the calibration of the layers that the outputs need; None where none is read.

    The images are read once for all recipes that calibrate alike.
    """
    made, found = dict[CalibrationSettings, Calibration](), list[Calibration | None]()
    for out, opened in every.items():
        settings = opened.recipe.calibrate
        if not opened.reads_calibration:
            found.append(None)
            continue
        if settings not in made:
            made[settings] = opened.calibrate(out / CALIBRATION, keep_sums=True)
        elif not opened.has_calibration:
            save_calibration(made[settings], out / CALIBRATION)
        found.append(made[settings].of_first(opened.vit.spec.depth))
    return found


def _named(vit: PrunableViT, folder: ImageFolder | None) -> PrunableViT:
    """Return the model; if it has no names of its classes, with those of the images, which one line says."""
    named = steps.with_class_names(vit, folder)
    if folder is not None and named is not vit:
        names = named.spec.class_names
        text = "%s has no class names: the files get those of %s, from 0, %s, to %d, %s"
        logger.warning(text, vit.spec.name, folder.root, names[0], len(names) - 1, names[-1])
    return named


def _pruned(
    opened: Opened, vit: PrunableViT, calibration: Calibration | None
) -> tuple[PrunedViT, Gain | None]:
    """Return the pruned model, refitted where the recipe says so, and what that gains."""
    schedule = opened.schedule(vit, calibration)
    warn_of_few_images(schedule, calibration)
    pruned = steps.prune(vit, schedule, calibration, opened.recipe.lower.laid_out)
    if not opened.recipe.prune.refit:
        return pruned, None
    return opened.refitted(pruned)


def _images(opened: Opened, folder: ImageFolder | None) -> Array:
    """Return the images to compare on, [n, 3, H, W] as the models take them; noise where there is no folder."""
    images, kind, spec = opened.recipe.images, opened.recipe.lower.input_kind, opened.vit.spec
    count, seed = images.check_images, images.seed
    if folder is None:
        return noise(spec, kind, count, seed)
    return draw_images(folder, count, seed, spec.preprocessing, kind)


def _deliver(out: Path, made: Made, shown: Shown, images: Array, recipe: Recipe) -> list[str]:
    """Write the report, and what a deployment machine needs beside both models; return all file names."""
    (report, pictures), pruned, artefact = shown, made.references.pruned, made.artefact
    runner, dense = (
        reference_runner(each, artefact.input_kind) for each in (pruned, made.references.dense)
    )
    save_reference(runner, dense, images, out / REFERENCE)
    save_json(pruned.schedule, out / SCHEDULE)
    save_json(pruned.vit.spec, out / MODEL)
    save_json(recipe, out / RECIPE)
    save_json(report, out / REPORT)
    save_page(report, artefact, out / PAGE, pictures=pictures, settings=settings_of(recipe))
    variants = save_variants(made.models.pruned.path)
    raw = save_raw_images(images, sorted({1, report.batch}), out)
    names = [REFERENCE, SCHEDULE, MODEL, RECIPE, REPORT, PAGE]
    return [*names, *report.files.values(), *variants.values(), *raw]


def _lowered(
    references: Sequence[Pair[PrunedViT]],
    lowering: Lowering,
    ranges: Array | None,
    outs: Sequence[Path],
    stages: Stages,
) -> list[Pair[LoweredFile]]:
    """Write each pruned model into its folder, and the dense one into all of them."""

    def saved(reference: PrunedViT, outs: Sequence[Path]) -> list[Path]:
        with stages.stage(f"lowering, {reference.method}"):
            model = lower(reference, lowering.row, lowering.input_kind, ranges)
            name = lowering.row.file_name(reference.vit.spec.name, reference.method)
            for out in outs:
                save_onnx(model, out / name)
        return [out / name for out in outs]

    dense = saved(references[0].dense, outs)
    pruned = [saved(each.pruned, [out])[0] for each, out in zip(references, outs, strict=True)]
    return [read_pair(Pair(*paths)) for paths in zip(dense, pruned, strict=True)]
