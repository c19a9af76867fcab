"""Draw the kept patches over their images."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
from PIL import Image

from exporter.evaluation.survivors import NOBODY, positions_by_layer
from exporter.records import ModelSpec, Preprocessing
from exporter.tensor_names import IMAGES

__all__ = ["Strip", "filmstrip", "strips"]

Array = np.ndarray[Any, Any]

# Dropped patches keep this share of their colour; the rest is a blue that is rare in photos and drawings.
KEPT_SHARE = 0.25
DROPPED_COLOUR = (52, 92, 168)
SHORTEST_SIDE = 112
SHOWN_IMAGES = 6
SHOWN_LAYERS = 4


@dataclass(frozen=True)
class Strip:
    """The pictures of one image: the PNG's data URI, and its caption."""

    address: str
    caption: str


def strips(reference: Mapping[str, Array], spec: ModelSpec, input_kind: str) -> list[Strip]:
    """Draw the first images of a reference, each with the patches left after some of the pruning layers.

    Args:
        reference: The arrays `images`, `keep_NN` and a-STAR's `count_NN` of `reference.npz`.
        spec: The model's shape and preprocessing.
        input_kind: Type of `images`, "uint8" or "float32".
    """
    positions = positions_by_layer(reference)
    if not positions:
        return []
    layers = list(positions)
    shown = [layers[i] for i in np.unique(np.linspace(0, len(layers) - 1, SHOWN_LAYERS).round().astype(int))]
    pixels = _pixels(reference[IMAGES][:SHOWN_IMAGES], spec.preprocessing, input_kind)
    caption = (
        f"The image, then those of {spec.num_patches} patches left after layers {', '.join(map(str, shown))}"
    )
    return [
        Strip(filmstrip(image, [positions[layer][index] for layer in shown], spec.grid), caption)
        for index, image in enumerate(pixels)
    ]


def _pixels(images: Array, preprocessing: Preprocessing, input_kind: str) -> Array:
    """Recover the uint8 pixels of a model's input."""
    if input_kind == "uint8":
        return images
    mean, std = (np.array(values).reshape(3, 1, 1) for values in (preprocessing.mean, preprocessing.std))
    return ((images * std + mean) * 255.0).round().clip(0, 255).astype(np.uint8)


def filmstrip(pixels: Array, survivors: Sequence[Array], grid: tuple[int, int]) -> str:
    """Draw an image and its survivors after some layers, side by side, as the data URI of a PNG.

    Args:
        pixels: One image, uint8 [3, H, W].
        survivors: For each further picture, the positions [k] of the survivors, padded with NOBODY.
        grid: Number of patch rows and columns.
    """
    height, width = pixels.shape[1:]
    frames = [pixels.astype(np.float32)]
    dropped_colour = np.array(DROPPED_COLOUR, dtype=np.float32).reshape(3, 1, 1)
    patch = np.ones((height // grid[0], width // grid[1]), dtype=np.float32)
    for positions in survivors:
        share = np.full(grid[0] * grid[1], KEPT_SHARE, dtype=np.float32)
        share[positions[positions != NOBODY]] = 1.0
        light = np.kron(share.reshape(grid), patch)
        frames.append(light * pixels + (1.0 - light) * dropped_colour)
    gap = np.full((3, height, max(width // 28, 1)), 255.0, dtype=np.float32)
    row = [frames[0], *(part for frame in frames[1:] for part in (gap, frame))]
    picture = Image.fromarray(np.concatenate(row, axis=2).astype(np.uint8).transpose(1, 2, 0))
    zoom = max(1, SHORTEST_SIDE // height)
    picture = picture.resize((picture.width * zoom, picture.height * zoom), Image.Resampling.NEAREST)
    content = BytesIO()
    picture.save(content, format="PNG")
    return "data:image/png;base64," + base64.b64encode(content.getvalue()).decode("ascii")
