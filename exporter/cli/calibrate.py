"""Measure inter-layer importance and average cosine similarity (ACS) on images.

Writes one calibration file, which plan, export and check read. An interrupted run continues when started again.
"""

import argparse
from pathlib import Path

from exporter.cli.flags import CALIBRATION, IMAGES, MODEL
from exporter.settings import add_flags, from_flags
from exporter.workflows.recipe import Recipe, needed

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    add_flags(parser, Recipe, (*MODEL, *IMAGES, *CALIBRATION, "scorer"))
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help="The calibration to write, .safetensors."
    )


def run(arguments: argparse.Namespace) -> int:
    """Calibrate and print ACS and the halves' agreement by layer; the exit code is 0."""
    from exporter.calibration.agreement import warn_where_unsettled  # noqa: PLC0415
    from exporter.cli.output import RichStages, print_json, print_table  # noqa: PLC0415
    from exporter.files import writable_file  # noqa: PLC0415
    from exporter.workflows import steps  # noqa: PLC0415
    from exporter.workflows.resolve import resolve  # noqa: PLC0415

    job, out = resolve(from_flags(Recipe, arguments)), writable_file(arguments.out)
    needed(job.images.images, "--images", "a folder of images")
    stages = RichStages()
    with stages.stage("model"):
        vit = steps.load_model(job.model, job.device)
    with stages.stage("calibration") as advance:
        calibration = steps.calibrate(vit, job.calibration, job.images, out, advance)
    record = calibration.record
    if record.settings.max_images == "auto":
        warn_where_unsettled(record.overlap, range(1, len(calibration.acs) + 1), record.images)
    if arguments.json:
        print_json({"file": str(arguments.out), "acs": calibration.acs.tolist(), "record": record})
    else:
        images = f"{record.images} images, {record.skipped} skipped"
        agreed = [f"{share:.2f}" for share in record.overlap or ()] or [""] * len(calibration.acs)
        rows = [
            (layer, f"{acs:.4f}", share)
            for layer, (acs, share) in enumerate(zip(calibration.acs, agreed, strict=True), start=1)
        ]
        print_table(f"{arguments.out}: {images}", ("layer", "ACS", "overlap of halves"), rows)
    return 0
