"""The pictures show the kept patches."""

import base64
from io import BytesIO

import numpy as np
from PIL import Image

from exporter.evaluation.report.pictures import GONE_COLOUR, GONE_SHARE, drawn, faded
from exporter.tensor_names import IMAGES, count_name, keep_name


def decoded(address: str) -> np.ndarray:
    return np.asarray(Image.open(BytesIO(base64.b64decode(address.partition(",")[2]))).convert("RGB"))


def test_survivors_keep_their_light() -> None:
    picture = faded(np.full((3, 8, 8), 200, dtype=np.uint8), np.array([0, 3]), grid=(2, 2))
    gone = [int(GONE_SHARE * 200 + (1 - GONE_SHARE) * each) for each in GONE_COLOUR]
    for channel, colour in enumerate(gone):
        quarters = [
            picture[channel, row : row + 4, column : column + 4] for row in (0, 4) for column in (0, 4)
        ]
        assert [int(np.median(each)) for each in quarters] == [200, colour, colour, 200]


def test_frames_of_each_image_are_enlarged_and_say_what_is_left() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (2, 3, 32, 32), dtype=np.uint8)
    keep = {keep_name(2): np.array([[0, 1, 5], [2, 3, 4]]), keep_name(4): np.array([[1], [2]])}
    pictures = drawn({IMAGES: pixels, **keep}, (4, 4))
    assert [[(frame.layer, frame.left) for frame in each.frames] for each in pictures] == [
        [(0, 16), (2, 3), (4, 1)]
    ] * 2
    whole = decoded(pictures[0].frames[0].address)
    assert whole.shape == (96, 96, 3)
    assert abs(whole[1::3, 1::3].astype(int) - pixels[0].transpose(1, 2, 0)).mean() < 40


def test_an_image_of_a_star_shows_its_own_count() -> None:
    pixels = np.zeros((2, 3, 8, 8), np.uint8)
    keep = {keep_name(1): np.array([[0, 1], [3, 0]]), count_name(1): np.array([2, 1])}
    assert [each.frames[1].left for each in drawn({IMAGES: pixels, **keep}, (2, 2))] == [2, 1]


def test_a_dense_model_has_no_pictures() -> None:
    assert drawn({IMAGES: np.zeros((1, 3, 32, 32), np.uint8)}, (4, 4)) == []
