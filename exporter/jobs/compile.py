"""Compile a trained ViT: prune and export it, compare it with PyTorch, measure it, and write the export folder."""

import logging
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from exporter.calibration.calibrate import sums_path
from exporter.calibration.record import Calibration, save_calibration
from exporter.calibration.settings import CalibrationSettings
from exporter.core.base.canonical_json import save_json
from exporter.core.base.files import PathLike, written_beside
from exporter.core.base.large_onnx import files_of
from exporter.core.base.progress import SILENT, Stages
from exporter.core.base.records import Pair
from exporter.core.base.tensor_names import IMAGES, TRACING, Array
from exporter.core.base.vocabulary import Method
from exporter.core.lower.instrumented import save_instrumented
from exporter.data.batches import noise
from exporter.data.images import ImageFolder
from exporter.engines.settings import BuildSettings
from exporter.engines.trtexec import SCRIPT, save_script
from exporter.jobs.checks import check_compile, recipes_of
from exporter.jobs.network import Network
from exporter.jobs.opened import (
    DryRun,
    dry_run,
    open_recipe,
    settings_of,
    warn_where_slow,
)
from exporter.jobs.proof import pictures_of, prove, references_of
from exporter.jobs.recipe import Recipe
from exporter.jobs.variant import Variant
from exporter.measure.benchmark import TradeOff
from exporter.measure.class_order import with_class_names
from exporter.measure.loss import Tuned
from exporter.models.identity import read_record
from exporter.models.own_vit import OwnModel
from exporter.report.folder_words import readme
from exporter.report.page import Shown, save_comparison, save_page
from exporter.report.record import Report
from exporter.report.try_page import runs_in_browser, save_try_page
from exporter.serve.export_folder import (
    CALIBRATION,
    CHECKSUMS,
    MODEL,
    PAGE,
    README,
    RECIPE,
    REFERENCE,
    REPORT,
    SCHEDULE,
    TRY_PAGE,
    finish_folder,
    read_checksums,
    save_raw_images,
    save_reference,
)
from exporter.training.pruned_checkpoint import TUNED

logger = logging.getLogger(__name__)


def compile_model(
    recipe: Recipe,
    out: PathLike,
    model: OwnModel | None = None,
    stages: Stages = SILENT,
    *,
    trade_off: TradeOff | None = None,
    command: Sequence[str] = (),
) -> Report:
    """Calibrate, plan, prune, lower, compare and measure; write the export folder to `out`.

    Args:
        recipe: The settings of the compilation.
        out: The folder; files of an earlier compilation in it are replaced one by one, and what it leaves over is
            removed.
        model: A ViT to use instead of the recipe's: an adapter, or a timm module.
        stages: Shows progress.
        trade_off: What a search measured, to be shown in the report in place of the two models alone.
        command: Noted in the report, beside the date, where speed is measured.

    Returns:
        The report; `report.passed` says whether both models passed the parity check.

    Raises:
        UserError: The recipe cannot be carried out.
    """
    variant = replace(open_recipe(recipe, stages, model, refits=True), folder=Path(out))
    ((report, _),) = _compiled([variant], [recipe], command, trade_off)
    return report


def compare_methods(
    recipe: Recipe,
    methods: Sequence[Method],
    out: PathLike,
    model: OwnModel | None = None,
    stages: Stages = SILENT,
    *,
    command: Sequence[str] = (),
) -> dict[Method, Report]:
    """Compile a model once for each method, all measured in one run, and write one page that shows them all.

    Args:
        recipe: The settings of each compilation, but for the method.
        methods: Different ones.
        out: A folder: of the page, and of an export folder for each method, by its name. What an earlier
            compilation left in it is removed.
        model: As for `compile_model`.
        stages: Shows progress.
        command: As for `compile_model`.

    Returns:
        The report of each method.

    Raises:
        UserError: One of them cannot be carried out. No model is written where a schedule cannot be made.
    """
    out, recipes = Path(out), recipes_of(recipe, methods)
    variants = list[Variant]()
    for changed, method in zip(recipes, methods, strict=True):
        variant = open_recipe(changed, stages, model, refits=True)
        # The model is loaded once.
        network = variants[0].network if variants else variant.network
        variants.append(replace(variant, network=network, folder=out / method))
    pages = _compiled(variants, recipes, command)
    with stages.stage("page"):
        save_comparison(dict(zip(methods, pages, strict=True)), out / PAGE, page=PAGE)
        names = [PAGE]
        for method in methods:
            listed = (*read_checksums(out / method), CHECKSUMS)
            names += [f"{method}/{name}" for name in listed]
        finish_folder(out, names, recipe.prune.calibration)
    return {method: report for method, (report, _) in zip(methods, pages, strict=True)}


def _compiled(
    variants: Sequence[Variant],
    recipes: Sequence[Recipe],
    command: Sequence[str],
    trade_off: TradeOff | None = None,
) -> list[Shown]:
    """Compile variants of one network, each into its folder; return what the pages show.

    They differ in their method alone. `recipes` are theirs, as they were given.
    """
    for variant in variants:
        assert variant.policy is not None
        check_compile(variant.network, variant.policy, variant.folder)
    network = variants[0].network
    warn_where_slow(variants[0].target)
    folder = None if network.on_noise else network.evaluated
    network = _with_class_names(network, folder)
    variants = _calibrated([replace(variant, network=network) for variant in variants])
    pixels = _pixels(network, folder)
    dense = variants[0].dense
    for variant in variants:
        variant.log_oddities()  # of its schedule, which is planned here
        _ = variant.pruned
    for variant in (dense, *variants):
        with network.stages.stage(f"export, {variant.pruned.method}"):
            _ = variant.file
    with network.stages.stage("answers of PyTorch"):
        references = [*references_of(dense, variants, pixels)]
    reports = prove(dense, variants, references, folder)
    tuned = read_record(network.recipe.model.checkpoint, TUNED, Tuned)
    with network.stages.stage("report"):
        date = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
        typed = shlex.join(command)
        reports = [
            replace(
                report,
                speed=report.speed.noted(date, typed),
                searched=trade_off,
                tuned=tuned,
            )
            for report in reports
        ]
        pictures = pictures_of(reports, variants, folder)
        pages: list[Shown] = list(zip(reports, pictures, strict=True))
        for variant, page, reference, recipe in zip(
            variants, pages, references, recipes, strict=True
        ):
            _deliver(dense, variant, page, reference, recipe)
    return pages


def dry_compile(recipe: Recipe, out: PathLike) -> DryRun:
    """Check what `compile_model` checks before its first step, weights included; nothing is written."""
    variant = replace(open_recipe(recipe, refits=True), folder=Path(out))
    assert variant.policy is not None
    check_compile(variant.network, variant.policy, variant.folder)
    if not variant.network.on_noise:
        _ = variant.network.evaluated
    return dry_run(variant, recipe)


def _with_class_names(network: Network, folder: ImageFolder | None) -> Network:
    """Return the network; if it has no names of its classes, with those of the images."""
    vit = with_class_names(network.full, folder)
    return network if vit is network.full else replace(network, model=vit)


def _calibrated(variants: Sequence[Variant]) -> list[Variant]:
    """Return the variants with their calibrations; those that calibrate alike read the images once."""
    known, calibrated = dict[CalibrationSettings, Calibration](), list[Variant]()
    for variant in variants:
        if not variant.reads_calibration:
            calibrated.append(variant)
            continue
        path, settings = variant.folder / CALIBRATION, variant.calibrates
        if settings not in known:
            known[settings] = variant.calibrate(path, keep_sums=True)
        elif not variant.network.has_calibration:
            save_calibration(known[settings], path)
        calibrated.append(replace(variant, measured=known[settings]))
    return calibrated


def _pixels(network: Network, folder: ImageFolder | None) -> Array:
    """Return the images to compare on, [n, 3, H, W] as the models take them; noise where there is no folder."""
    images, kind = network.recipe.images, network.input_kind
    if folder is None:
        return noise(network.vit.spec, kind, images.check_images, images.seed)
    return network.pixels(folder, images.check_images, kind)


def _deliver(
    dense: Variant,
    variant: Variant,
    page: Shown,
    reference: dict[str, Array],
    recipe: Recipe,
) -> None:
    """Write into a variant's folder what a deployment machine needs beside its file, and the report."""
    (report, _), out, artefact = page, variant.folder, variant.file
    _copy_model(dense.file.path, out)
    save_reference(reference, out / REFERENCE)
    save_json(variant.schedule, out / SCHEDULE)
    save_json(artefact.spec, out / MODEL)
    save_json(recipe, out / RECIPE)
    save_json(report, out / REPORT)
    instrumented = save_instrumented(variant.file.path)
    pages = _save_pages(page, variant, instrumented, recipe)
    batches = tuple(sorted({1, report.speed.batch}))
    raw = save_raw_images(reference[IMAGES], batches, out)
    names = [REFERENCE, SCHEDULE, MODEL, RECIPE, REPORT, *pages]
    if artefact.target.runtime.engines:
        save_script(Pair(dense.file, variant.file), BuildSettings(batches=batches), out)
        names.append(SCRIPT)
    for name in report.files.values():
        names += [path.name for path in files_of(out / name)]
    names += [*instrumented.values(), *raw]
    if variant.reads_calibration and not variant.network.has_calibration:
        names.append(CALIBRATION)
    with written_beside(out / README) as partial:
        partial.write_text(readme(names, report.files), encoding="utf-8")
    finish_folder(out, [*names, README], recipe.prune.calibration)
    # Until here, the next call continues.
    sums_path(out / CALIBRATION).unlink(missing_ok=True)


def _copy_model(path: Path, folder: Path) -> None:
    """Copy a model into a folder, unless it lies there."""
    for source in files_of(path):
        copy = folder / source.name
        if copy != source:
            with written_beside(copy) as partial:
                shutil.copyfile(source, partial)


def _save_pages(
    page: Shown, variant: Variant, instrumented: Mapping[str, str], recipe: Recipe
) -> list[str]:
    """Write the report, and the page that runs both models where a browser does; return their names."""
    (report, pictures), out, artefact = page, variant.folder, variant.file
    # A browser holds no model above 2 GB, whose weights are in a second file.
    is_small = all(len(files_of(out / name)) == 1 for name in report.files.values())
    is_tried = TRACING in instrumented and is_small and runs_in_browser(artefact)
    if is_tried:
        files = {**report.files, TRACING: instrumented[TRACING]}
        save_try_page(artefact, files, out / TRY_PAGE, report=PAGE)
    save_page(
        report,
        artefact,
        out / PAGE,
        pictures=pictures,
        settings=settings_of(recipe),
        try_page=TRY_PAGE if is_tried else "",
    )
    return [PAGE, TRY_PAGE] if is_tried else [PAGE]
