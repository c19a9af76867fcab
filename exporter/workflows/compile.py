"""The whole way in one call: a trained ViT and some images in, the export folder and its proof out."""

from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from exporter.artefact import LoweredFile, read_pair
from exporter.calibration.record import Calibration
from exporter.data.batches import first_images
from exporter.data.images import sample
from exporter.evaluation.benchmark import environment
from exporter.evaluation.benchmark.points import RhoSweep
from exporter.evaluation.parity.reference import reference_runner
from exporter.evaluation.report.page import save_page
from exporter.evaluation.report.pictures import strips
from exporter.evaluation.report.record import Gmacs, Report
from exporter.evaluation.report.versions import installed_versions
from exporter.files import writable_folder, written_beside
from exporter.lowering.pipeline import save_onnx
from exporter.lowering.variant_files import save_variants
from exporter.models.base import PrunableViT
from exporter.pruning.pruned_vit import PrunedViT
from exporter.records import Pair, Schedule, save_json
from exporter.schedule.macs import MacCount
from exporter.targets import target_named
from exporter.workflows import steps
from exporter.workflows.export_folder import (
    MODEL,
    REFERENCE,
    REPORT,
    SCHEDULE,
    save_checksums,
    save_raw_images,
    save_recipe,
    save_reference,
)
from exporter.workflows.measuring import measure_with
from exporter.workflows.progress import Silent, Stages
from exporter.workflows.proof import Proof, prove
from exporter.workflows.recipe import Recipe

__all__ = ["compile_model"]

# The picture of a sweep, beside the report.
CHART = "throughput.png"
RECIPE = "recipe.json"

Array = np.ndarray[Any, Any]


def compile_model(
    recipe: Recipe, out: Path, model: PrunableViT | nn.Module | None = None, stages: Stages | None = None
) -> Report:
    """Calibrate, plan, prune, lower, compare and measure; leave the export folder in `out`.

    Args:
        recipe: What to make, and of what.
        out: The folder; files of an earlier compilation in it are replaced one by one.
        model: A ViT in the place of the recipe's: an adapter, or a timm module.
        stages: Shows where the job is.

    Returns:
        The report; `report.passed` says whether the lowered models are their references.

    Raises:
        UserError: Something in the recipe cannot be done.
    """
    stages = stages or Silent()
    target = target_named(recipe.target)
    layout = target.layout(recipe.layout)
    target.check_method(recipe.method)
    writable_folder(out)
    if recipe.sweep:
        import_module(
            "exporter.evaluation.report.chart"
        )  # what it needs is missing now, or not after hours of work
    with stages.stage("model"):
        vit = steps.load_model(recipe, model)
        folder = steps.eval_images(recipe, vit.spec)
    with stages.stage("calibration") as advance:
        calibration = steps.calibrate(vit, recipe, out / "calibration.safetensors", advance)
    schedule = _planned(vit, calibration, recipe, stages)
    dense, pruned = steps.dense(vit), steps.prune(vit, schedule, calibration, layout)
    references = Pair(dense, pruned)
    models = read_pair(Pair(*(_lowered(each, recipe, out, stages) for each in (dense, pruned))))
    drawn = sample(folder, recipe.check_images, recipe.seed)
    images = first_images(drawn.files, vit.spec.preprocessing, recipe.input_kind, recipe.check_images)
    proof = prove(references, models, folder=folder, images=images, recipe=recipe, stages=stages)
    sweep = None
    if recipe.sweep:
        with stages.stage(f"sweep over rho {', '.join(map(str, recipe.sweep))}"):
            sweep = _sweep(references, calibration, images, recipe)
    report = _report(references, models, proof=proof, calibration=calibration, sweep=sweep, recipe=recipe)
    with stages.stage("report"):
        reference, names = _deliver(references, models, images, recipe, out)
        save_json(report, out / REPORT)
        chart = _save_chart(sweep, vit.spec.name, out / CHART) if sweep else ""
        save_page(report, strips(reference, vit.spec, recipe.input_kind), out / "report.html", chart)
        save_checksums(out, [*report.files.values(), REPORT, *names])
    return report


def _deliver(
    references: Pair[PrunedViT], models: Pair[LoweredFile], images: Array, recipe: Recipe, out: Path
) -> tuple[dict[str, Array], list[str]]:
    """What the deployment machine needs beside the two models: the reference's arrays, and the files written."""
    pruned = references.pruned
    runner, dense = (reference_runner(each, recipe.input_kind) for each in (pruned, references.dense))
    reference = save_reference(runner, dense, images, out / REFERENCE)
    save_json(pruned.schedule, out / SCHEDULE)
    save_json(pruned.vit.spec, out / MODEL)
    save_recipe(recipe, out / RECIPE)
    variants = save_variants(models.pruned.path)
    raw = save_raw_images(images, sorted({1, recipe.batch}), out)
    return reference, [REFERENCE, SCHEDULE, MODEL, RECIPE, *variants.values(), *raw]


def _planned(vit: PrunableViT, calibration: Calibration, recipe: Recipe, stages: Stages) -> Schedule:
    acs, inter_sha256 = calibration.acs.tolist(), calibration.inter_sha256
    if recipe.method == "star" or recipe.mac_reduction is None:
        return steps.plan(recipe, vit.spec, acs, inter_sha256)
    with stages.stage("rho, on calibration images"):
        return steps.plan(recipe, vit.spec, acs, inter_sha256, steps.measured_macs(vit, recipe, calibration))


def _lowered(reference: PrunedViT, recipe: Recipe, out: Path, stages: Stages) -> Path:
    with stages.stage(f"lowering, {reference.method}"):
        path = out / target_named(recipe.target).file_name(reference.vit.spec.name, reference.method)
        save_onnx(steps.export(reference, recipe), path)
    return path


def _sweep(references: Pair[PrunedViT], calibration: Calibration, images: Array, recipe: Recipe) -> RhoSweep:
    vit = references.dense.vit
    acs, inter_sha256 = calibration.acs.tolist(), calibration.inter_sha256
    schedules = [
        steps.plan(replace(recipe, rho=rho, mac_reduction=None), vit.spec, acs, inter_sha256)
        for rho in recipe.sweep
    ]
    layout = references.pruned.layout
    prune = partial(steps.prune, vit, calibration=calibration, layout=layout)
    return measure_with(references.dense, prune, images, recipe)(schedules)


def _save_chart(sweep: RhoSweep, model: str, path: Path) -> str:
    """Draw the sweep; the picture's address for the page."""
    from exporter.evaluation.report.chart import png_address, throughput_chart  # noqa: PLC0415  (matplotlib is slow to load)

    content = throughput_chart(sweep, model)
    with written_beside(path) as partial:
        partial.write_bytes(content)
    return png_address(content)


def _report(
    references: Pair[PrunedViT],
    models: Pair[LoweredFile],
    *,
    proof: Proof,
    calibration: Calibration,
    sweep: RhoSweep | None,
    recipe: Recipe,
) -> Report:
    pruned, use = references.pruned, proof.use
    comparison = proof.comparison
    macs = pruned.macs if use is None else MacCount(use.useful_macs - use.scoring_macs, use.scoring_macs)
    return Report(
        model=pruned.vit.spec.name,
        method=pruned.schedule.method,
        rho=pruned.schedule.rho,
        target=recipe.target,
        files={"dense": models.dense.path.name, "pruned": models.pruned.path.name},
        schedule=pruned.schedule,
        gmacs=Gmacs(references.dense.macs.gmacs, macs.gmacs, macs.scoring / 1e9),
        **vars(proof),
        passed=proof.passed,
        speedup=comparison.speedup if comparison else None,
        efficiency=comparison.efficiency if comparison else None,
        batch=recipe.batch,
        calibration_images=calibration.record.images,
        skipped_images=calibration.record.skipped,
        versions=installed_versions(),
        hardware=environment(recipe.threads),
        sweep=sweep,
    )
