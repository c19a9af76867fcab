"""Draw the README's picture: images, and the patches that ToMe and STAR leave of them, layer by layer.

    python calib_data/digits.py --set offset-digits --out build/offset_digits
    star-export calibrate --model offset_digits_vit --images build/offset_digits/train --out build/offset.safetensors
    python scripts/kept_picture.py --model offset_digits_vit --images build/offset_digits/held_out \
        --calibration build/offset.safetensors --out docs/images/kept.png

The images are the first of evenly spaced classes. Both ways save the same share of the multiply-adds.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from exporter.data.batches import first_images
from exporter.data.images import ImageFolder
from exporter.evaluation.parity.reference import reference_runner
from exporter.evaluation.report.pictures import faded, zoomed
from exporter.evaluation.survivors import positions_by_layer
from exporter.files import written_beside
from exporter.settings import add_flags, from_flags
from exporter.tensor_names import IMAGES
from exporter.vocabulary import Method
from exporter.workflows import steps
from exporter.workflows.planning import Planner, plan
from exporter.workflows.recipe import Recipe
from exporter.workflows.resolve import Job, resolve

Array = np.ndarray[Any, Any]
WAYS = {"ToMe": {"method": Method.TOME}, "STAR": {"method": Method.STAR, "scorer": "fused"}}
ROWS, COLUMNS = 3, 4


def main(argv: Sequence[str] | None = None) -> int:
    """Draw the picture."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_flags(parser, Recipe, ("model", "checkpoint", "images", "calibration", "mac_reduction", "seed"))
    parser.add_argument("--out", type=Path, required=True, help="The PNG.")
    options = parser.parse_args(argv)
    recipe = from_flags(Recipe, options, {"mac_reduction": 0.4})
    kept = {name: _kept(resolve(replace(recipe, **way))) for name, way in WAYS.items()}
    with written_beside(options.out) as partial:
        partial.write_bytes(_drawn(*kept.values(), names=list(kept)))
    return 0


def _kept(job: Job) -> tuple[Array, dict[int, Array], tuple[int, int]]:
    """Return images uint8 [n, 3, H, W], the positions left after each pruning layer, and the grid."""
    vit = steps.load_model(job.model, job.device)
    calibration = steps.read_calibration(job.calibration, vit.spec, vit.weights_sha256)
    schedule = plan(job.needed_amount("the picture"), Planner.of(vit.spec, job.scoring, calibration, job.shape))
    folder = steps.eval_images(job.images, vit.spec)
    files = _of_each_class(folder)
    images = first_images(files, vit.spec.preprocessing, "uint8", ROWS)
    with reference_runner(steps.prune(vit, schedule, calibration), "uint8") as runner:
        tensors: Mapping[str, Array] = runner.run({IMAGES: images})
    return images, positions_by_layer(tensors), vit.spec.grid


def _of_each_class(folder: ImageFolder) -> list[Any]:
    first = {file.label: file for file in reversed(folder.files)}
    labels = sorted(label for label in first if label is not None)
    return [first[labels[at]] for at in np.linspace(1, len(labels) - 1, ROWS).round().astype(int)]


def _drawn(*kept: tuple[Array, dict[int, Array], tuple[int, int]], names: Sequence[str]) -> bytes:
    images, _, grid = kept[0]
    width = 1 + COLUMNS * len(kept)
    figure = Figure(figsize=(1.15 * width, 1.2 * ROWS + 0.35), dpi=110, layout="constrained", facecolor="white")
    grid_of_axes = figure.subplots(ROWS, width, squeeze=False)
    for row, pixels in enumerate(images):
        cells = [("image", pixels)]
        for name, (_, positions, _) in zip(names, kept, strict=True):
            layers = list(positions)
            shown = [layers[at] for at in np.linspace(1, len(layers) - 1, COLUMNS).round().astype(int)]
            left = {layer: positions[layer][row] for layer in shown}
            cells += [(f"{name}, layer {layer}:\n{len(at)} of {grid[0] * grid[1]}", faded(pixels, at, grid)) for layer, at in left.items()]
        for axes, (title, cell) in zip(grid_of_axes[row], cells, strict=True):
            axes.imshow(np.asarray(zoomed(cell)))
            axes.axis("off")
            if not row:
                axes.set_title(title, fontsize=8)
    content = BytesIO()
    figure.savefig(content, format="png", metadata={"Software": None})
    return content.getvalue()


if __name__ == "__main__":
    sys.exit(main())
