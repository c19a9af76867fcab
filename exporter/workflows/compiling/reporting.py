"""Make the report of a compilation, and its page."""

from pathlib import Path

from exporter.artefact import Artefact, LoweredFile
from exporter.calibration.record import Calibration
from exporter.data.batches import first_images
from exporter.data.images import ImageFolder
from exporter.evaluation.benchmark import environment
from exporter.evaluation.benchmark.timing import TradeOff, TradePoint
from exporter.evaluation.parity.reference import reference_runner
from exporter.evaluation.report.page import Picture, drawn, save_page
from exporter.evaluation.report.record import Gmacs, Report, installed_versions
from exporter.pruning.pruned_vit import PrunedViT
from exporter.records import Pair, Schedule
from exporter.tensor_names import IMAGES
from exporter.workflows.compiling.proof import Proof, macs_of
from exporter.workflows.folders.export_folder import PAGE
from exporter.workflows.recipe import Measuring
from exporter.workflows.steps import with_class_names

__all__ = ["report_of", "save_page_of"]

# Images that are shown of a model without classes.
FIRST = 4


def report_of(
    references: Pair[PrunedViT],
    models: Pair[LoweredFile],
    *,
    proof: Proof,
    calibration: Calibration | None,
    folder: ImageFolder | None,
    measuring: Measuring,
) -> Report:
    """Return the report; `folder` has the images of the proof, None where that used noise."""
    pruned, use, comparison = references.pruned, proof.use, proof.comparison
    schedule, macs = pruned.schedule, macs_of(references, use)
    files, target = {"dense": models.dense.path, "pruned": models.pruned.path}, models.pruned.artefact.target
    return Report(
        model=pruned.vit.spec.name,
        method=schedule.method,
        reduce=schedule.reduce,
        rho=schedule.rho,
        target=target.name,
        files={role: path.name for role, path in files.items()},
        file_bytes={role: path.stat().st_size for role, path in files.items()},
        schedule=schedule,
        gmacs=Gmacs(
            macs.dense.gmacs,
            macs.pruned.gmacs,
            scoring=macs.pruned.scoring / 1e9,
            most=None if use is None else use.most_macs / 1e9,
        ),
        **vars(proof),
        passed=proof.passed,
        speedup=comparison.speedup if comparison else None,
        efficiency=comparison.efficiency if comparison else None,
        batch=measuring.batch,
        calibration_images=calibration.record.images if calibration else 0,
        skipped_images=calibration.record.skipped if calibration else 0,
        versions=installed_versions(),
        hardware=environment(measuring.threads),
        class_names=with_class_names(pruned.vit, folder).spec.class_names,
        calibration_overlap=calibration.overlap_by_layer if calibration else None,
        calibration_skipped=dict(calibration.skipped) if calibration else {},
        trade_off=_trade_off(proof, schedule, target.name),
        measured_on="noise" if folder is None else "images",
    )


def _trade_off(proof: Proof, schedule: Schedule, target: str) -> TradeOff | None:
    """Return the speed of both models and what the pruned one loses; None unless both are measured."""
    times, pair = proof.throughput, proof.pair
    if times is None or pair is None or pair.loss_points is None:
        return None
    dense, speed, loss = times.dense.images_per_s, times.pruned.images_per_s, pair.loss_points
    label = str(schedule.method) if schedule.rho is None else f"{schedule.method}, rho {schedule.rho:.4g}"
    point = TradePoint(label, speed, loss, pair.loss_interval_points, front=speed > dense or loss < 0)
    return TradeOff(times.dense.batch, "top1", pair.images, {target: dense}, (point,))


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
