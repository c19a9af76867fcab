"""Draw the kept patches over their images."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
from PIL import Image

from exporter.evaluation.survivors import NOBODY, positions_by_layer
from exporter.tensor_names import IMAGES

__all__ = ["Frame", "Picture", "drawn", "faded", "image_address", "zoomed"]

Array = np.ndarray[Any, Any]

# Patches that are gone keep this share of their colour; the rest is a blue that is rare in photos and drawings.
GONE_SHARE = 0.22
GONE_COLOUR = (38, 74, 140)
SHORTEST_SIDE = 112
SHOWN_LAYERS = 4


@dataclass(frozen=True)
class Frame:
    """An image with the patches left after a 1-based layer; layer 0 is the whole image. `address` is a data URI."""

    layer: int
    left: int
    address: str


@dataclass(frozen=True)
class Picture:
    """The frames of one image: whole, then after some of the pruning layers."""

    frames: tuple[Frame, ...]


def drawn(tensors: Mapping[str, Array], grid: tuple[int, int]) -> list[Picture]:
    """Draw images, each with the patches left after some of the pruning layers; none if no layer prunes.

    Args:
        tensors: `images` uint8 [n, 3, H, W], and the arrays `keep_NN` and a-STAR's `count_NN` of a pruned model.
        grid: Number of patch rows and columns.
    """
    positions = positions_by_layer(tensors)
    if not positions:
        return []
    layers = list(positions)
    shown = [
        layers[at] for at in np.unique(np.linspace(0, len(layers) - 1, SHOWN_LAYERS).round().astype(int))
    ]
    pictures = []
    for index, pixels in enumerate(tensors[IMAGES]):
        left = {layer: positions[layer][index][positions[layer][index] != NOBODY] for layer in shown}
        after = [
            Frame(layer, len(kept), image_address(zoomed(faded(pixels, kept, grid))))
            for layer, kept in left.items()
        ]
        pictures.append(Picture((Frame(0, grid[0] * grid[1], image_address(zoomed(pixels))), *after)))
    return pictures


def faded(pixels: Array, kept: Array, grid: tuple[int, int]) -> Array:
    """Return an image uint8 [3, H, W] in which all patches but those at the positions `kept` [k] fade into blue."""
    height, width = pixels.shape[1:]
    share = np.full(grid[0] * grid[1], GONE_SHARE, dtype=np.float32)
    share[kept] = 1.0
    light = np.kron(share.reshape(grid), np.ones((height // grid[0], width // grid[1]), dtype=np.float32))
    gone = np.array(GONE_COLOUR, dtype=np.float32).reshape(3, 1, 1)
    return (light * pixels + (1.0 - light) * gone).astype(np.uint8)


def zoomed(pixels: Array) -> Image.Image:
    """Return uint8 [3, H, W] as an image, enlarged by a whole number if it is small."""
    zoom = max(1, SHORTEST_SIDE // min(pixels.shape[1:]))
    image = Image.fromarray(pixels.transpose(1, 2, 0))
    return image.resize((image.width * zoom, image.height * zoom), Image.Resampling.NEAREST)


def image_address(image: Image.Image) -> str:
    """Encode an image as a data URI; WebP takes a tenth of a PNG's bytes for photos."""
    content = BytesIO()
    image.save(content, format="WEBP", quality=90)
    return "data:image/webp;base64," + base64.b64encode(content.getvalue()).decode("ascii")
