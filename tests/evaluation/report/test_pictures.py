"""The pictures show the kept patches."""

import base64
from io import BytesIO

import numpy as np
from PIL import Image

from exporter.evaluation.report.pictures import DROPPED_COLOUR, KEPT_SHARE, filmstrip, strips
from exporter.models.base import PrunableViT
from exporter.tensor_names import IMAGES, keep_name


def decoded(address: str) -> np.ndarray:
    return np.asarray(Image.open(BytesIO(base64.b64decode(address.partition(",")[2]))))


def test_survivors_keep_their_light() -> None:
    pixels = np.full((3, 8, 8), 200, dtype=np.uint8)
    picture = decoded(filmstrip(pixels, [np.array([0, 3])], grid=(2, 2)))
    second = picture[:, picture.shape[1] - picture.shape[0] :, 2]
    half = second.shape[0] // 2
    quarters = [second[:half, :half], second[:half, half:], second[half:, :half], second[half:, half:]]
    dropped = int(KEPT_SHARE * 200 + (1 - KEPT_SHARE) * DROPPED_COLOUR[2])
    assert [int(np.median(quarter)) for quarter in quarters] == [200, dropped, dropped, 200]


def test_a_strip_an_image_from_either_input(tiny_vit: PrunableViT) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (2, 3, 32, 32), dtype=np.uint8)
    preprocessing = tiny_vit.spec.preprocessing
    mean, std = (np.array(v).reshape(3, 1, 1) for v in (preprocessing.mean, preprocessing.std))
    images = ((pixels / 255 - mean) / std).astype(np.float32)
    keep = {keep_name(2): np.array([[0, 1, 5], [2, 3, 4]])}
    from_pixels = strips({IMAGES: pixels, **keep}, tiny_vit.spec, "uint8")
    from_floats = strips({IMAGES: images, **keep}, tiny_vit.spec, "float32")
    assert from_pixels == from_floats
    assert len(from_pixels) == 2
    assert "left after layers 2" in from_pixels[0].caption


def test_a_dense_model_has_no_pictures(tiny_vit: PrunableViT) -> None:
    assert strips({IMAGES: np.zeros((1, 3, 32, 32), np.uint8)}, tiny_vit.spec, "uint8") == []
