"""Compile a trained ViT: prune and export it, compare it with PyTorch, measure it, and write the export folder."""

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
from exporter.files import PathLike, writable_folder, written_beside
from exporter.formats.canonical_json import save_json
from exporter.lowering.pipeline import save_onnx
from exporter.lowering.variant_files import save_variants
from exporter.models.base import PrunableViT
from exporter.pruning.pruned_vit import PrunedViT
from exporter.records import Pair
from exporter.schedule.macs import MacCount
from exporter.workflows import steps
from exporter.workflows.compile_schedule import (
    checked_amount,
    measured_sweep,
    schedule_of,
)
from exporter.workflows.export_folder import (
    MODEL,
    REFERENCE,
    REPORT,
    SCHEDULE,
    save_checksums,
    save_raw_images,
    save_reference,
)
from exporter.workflows.progress import Silent, Stages
from exporter.workflows.proof import Proof, prove
from exporter.workflows.recipe import Recipe
from exporter.workflows.requests import Lowering
from exporter.workflows.resolve import Job, resolve

__all__ = ["compile_model"]

# The chart of a sweep, beside the report.
CHART = "throughput.png"
RECIPE = "recipe.json"

Array = np.ndarray[Any, Any]


def compile_model(
    recipe: Recipe, out: PathLike, model: PrunableViT | nn.Module | None = None, stages: Stages | None = None
) -> Report:
    """Calibrate, plan, prune, lower, compare and measure; write the export folder to `out`.

    Args:
        recipe: The settings of the compilation.
        out: The folder; files of an earlier compilation in it are replaced one by one.
        model: A ViT to use instead of the recipe's: an adapter, or a timm module.
        stages: Shows progress.

    Returns:
        The report; `report.passed` says whether both models passed the parity check.

    Raises:
        UserError: The recipe cannot be carried out.
    """
    stages, out, job = stages or Silent(), Path(out), resolve(recipe)
    amount = checked_amount(job)
    writable_folder(out)
    with stages.stage("model"):
        whole = steps.load_model(job.model, job.device, model)
        vit, _ = steps.with_outputs(whole, job.outputs)
        folder = steps.eval_images(job.images, vit.spec)
    calibration = None
    if job.reads_calibration:
        with stages.stage("calibration") as advance:
            path = out / "calibration.safetensors"
            calibration = steps.calibrate(whole, job.calibration, job.images, path, advance)
        calibration = calibration.of_first(vit.spec.depth)
    drawn, lowering = sample(folder, job.images.check_images, job.images.seed), job.lowering
    images = first_images(drawn.files, vit.spec.preprocessing, lowering.input_kind, job.images.check_images)
    schedule = schedule_of(vit, calibration, amount=amount, images=images, job=job, stages=stages)
    steps.warn_where_unsettled(schedule, calibration)
    references = Pair(steps.dense(vit), steps.prune(vit, schedule, calibration, lowering.layout))
    ranges = steps.range_images(job.images, vit.spec, lowering.input_kind, lowering.target)
    paths = (_lowered(each, lowering, ranges, out, stages) for each in (references.dense, references.pruned))
    models = read_pair(Pair(*paths))
    proof = prove(references, models, folder=folder, images=images, measuring=job.measuring, stages=stages)
    sweep = None
    if job.sweep:
        sweep = measured_sweep(vit, calibration, images=images, job=job, stages=stages)
    report = _report(references, models, proof=proof, calibration=calibration, sweep=sweep, job=job)
    with stages.stage("report"):
        save_json(recipe, out / RECIPE)
        reference, names = _deliver(references, models, images, job.measuring.batch, out)
        save_json(report, out / REPORT)
        chart = _save_chart(sweep, vit.spec.name, out / CHART) if sweep else ""
        save_page(report, strips(reference, vit.spec, lowering.input_kind), out / "report.html", chart)
        save_checksums(out, [*report.files.values(), REPORT, *names])
    return report


def _deliver(
    references: Pair[PrunedViT], models: Pair[LoweredFile], images: Array, batch: int, out: Path
) -> tuple[dict[str, Array], list[str]]:
    """Write what a deployment machine needs beside both models; return the reference arrays and the file names."""
    pruned, input_kind = references.pruned, models.pruned.artefact.input_kind
    runner, dense = (reference_runner(each, input_kind) for each in (pruned, references.dense))
    reference = save_reference(runner, dense, images, out / REFERENCE)
    save_json(pruned.schedule, out / SCHEDULE)
    save_json(pruned.vit.spec, out / MODEL)
    variants = save_variants(models.pruned.path)
    raw = save_raw_images(images, sorted({1, batch}), out)
    return reference, [REFERENCE, SCHEDULE, MODEL, RECIPE, *variants.values(), *raw]


def _lowered(
    reference: PrunedViT, lowering: Lowering, ranges: Array | None, out: Path, stages: Stages
) -> Path:
    with stages.stage(f"lowering, {reference.method}"):
        path = out / lowering.target.file_name(reference.vit.spec.name, reference.method)
        save_onnx(steps.export(reference, lowering, ranges), path)
    return path


def _save_chart(sweep: RhoSweep, model: str, path: Path) -> str:
    """Draw the sweep, write the image, and return its data URL for the page."""
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
    calibration: Calibration | None,
    sweep: RhoSweep | None,
    job: Job,
) -> Report:
    pruned, use = references.pruned, proof.use
    comparison = proof.comparison
    macs = pruned.macs if use is None else MacCount(use.useful_macs - use.scoring_macs, use.scoring_macs)
    return Report(
        model=pruned.vit.spec.name,
        method=pruned.schedule.method,
        reduce=pruned.schedule.reduce,
        rho=pruned.schedule.rho,
        target=job.lowering.target.name,
        files={"dense": models.dense.path.name, "pruned": models.pruned.path.name},
        schedule=pruned.schedule,
        gmacs=Gmacs(references.dense.macs.gmacs, macs.gmacs, macs.scoring / 1e9),
        **vars(proof),
        passed=proof.passed,
        speedup=comparison.speedup if comparison else None,
        efficiency=comparison.efficiency if comparison else None,
        batch=job.measuring.batch,
        calibration_images=calibration.record.images if calibration else 0,
        skipped_images=calibration.record.skipped if calibration else 0,
        versions=installed_versions(),
        hardware=environment(job.measuring.threads),
        sweep=sweep,
        calibration_overlap=calibration.overlap_by_layer if calibration else None,
    )
