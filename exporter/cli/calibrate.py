"""Measure inter-layer importance and average cosine similarity (ACS) on images.

Writes one calibration file, which plan, export and check read. An interrupted run continues when started again.
"""

import argparse
from itertools import zip_longest
from pathlib import Path

from exporter.calibration.record import Calibration
from exporter.cli.flags import IMAGE_FLAGS, MODEL_FLAGS, add_out, add_recipe, recipe_of
from exporter.cli.output import (
    print_lines,
    print_table,
    show,
    skipped_lines,
)
from exporter.cli.setting_flags import add_flags
from exporter.core.base.files import writable_file
from exporter.core.schedule.methods import FUSED
from exporter.jobs.network import A_FOLDER, Network
from exporter.jobs.recipe import Recipe, needed

EXAMPLES = (
    "star-export calibrate --model digits_vit --images photos/ --out calibration.safetensors",
    "star-export calibrate --model digits_vit --images photos/ --max-images auto --out calibration.safetensors",
)

# The processes of a launcher share the images.
SPREAD = True
# After an interruption, the same command goes on.
RESUMES = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    add_recipe(parser)
    add_flags(parser, Recipe, (*MODEL_FLAGS, *IMAGE_FLAGS, "scorer"))
    add_out(parser, "The calibration to write, .safetensors.")


def run(arguments: argparse.Namespace) -> int:
    """Calibrate and print ACS and the halves' agreement by layer; the exit code is 0."""
    recipe, out = recipe_of(arguments), writable_file(arguments.out)
    needed(recipe.images.images, "--images", A_FOLDER)
    network = Network.of(recipe, restore=False)
    network.policy()
    network.check_images()
    network.check_model()
    from exporter.jobs.opened import open_recipe

    # The file serves every scorer unless one is named: the default one needs no inter-layer scores.
    recipe = recipe.but(prune={"scorer": recipe.prune.scorer or FUSED.name})
    variant = open_recipe(recipe, arguments.stages, restore=False)
    _ = variant.network.full  # a model that cannot be loaded is refused first
    calibration = variant.calibrate(out)
    if calibration.record.settings.max_images == "auto":
        calibration.warn_where_unsettled(range(1, len(calibration.acs) + 1))
    result = {
        "file": str(out),
        "acs": calibration.acs.tolist(),
        "overlap": calibration.overlap_by_layer,
        "skipped": calibration.skipped,
        "record": calibration.record,
    }
    show(arguments, result, lambda: _print(calibration, out))
    return 0


def _print(calibration: Calibration, out: Path) -> None:
    record = calibration.record
    shares = [f"{share:.2f}" for share in calibration.overlap_by_layer or ()]
    columns = zip_longest(calibration.acs, shares, fillvalue="")
    rows = [
        (layer, f"{acs:.4f}", share)
        for layer, (acs, share) in enumerate(columns, start=1)
    ]
    images = f"{record.images} images, {record.skipped} skipped"
    print_table(f"{out}: {images}", ("layer", "ACS", "overlap of halves"), rows)
    print_lines(skipped_lines({"calibration": calibration.skipped}))
