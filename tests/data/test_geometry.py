"""The geometry is timm's, pixel by pixel, for every mode, filter, size and share that a model may have."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from PIL import Image
from timm.data import create_transform

from exporter.core.base.records import Preprocessing
from exporter.core.base.vocabulary import CropMode, CropRounding, Interpolation
from exporter.data.pixels import to_input_size, to_pixels
from tests.versions import timm_is_before

SHARES = st.one_of(
    st.sampled_from([1.0, 0.875, 0.9, 0.95, 0.96, 224 / 248]), st.floats(0.3, 1.0)
)
SIDES = st.integers(1, 70)
TIMMS = [mode for mode in CropMode if mode is not CropMode.NONE]


def as_today(mode: CropMode, size: tuple[int, int]) -> bool:
    """Whether this timm resizes as the newest does: before, it did otherwise for oblong sizes, cropped."""
    return (
        mode is not CropMode.CENTER
        or size[0] == size[1]
        or not timm_is_before("1.0.31")
    )


def noise(height: int, width: int, seed: int) -> Image.Image:
    pixels = np.random.RandomState(seed).randint(0, 256, (height, width, 3))
    return Image.fromarray(pixels.astype(np.uint8))


def of_timm(image: Image.Image, preprocessing: Preprocessing) -> np.ndarray:
    transform = create_transform(
        preprocessing.input_size,
        interpolation=preprocessing.interpolation.value,
        mean=preprocessing.mean,
        crop_pct=preprocessing.crop_pct,
        crop_mode=preprocessing.crop_mode.value,
        normalize=False,
    )
    pixels: np.ndarray = transform(image).numpy()
    return pixels


@pytest.mark.parametrize("mode", TIMMS)
@given(
    interpolation=st.sampled_from(Interpolation),
    image=st.tuples(SIDES, SIDES),
    size=st.tuples(SIDES, SIDES),
    square=st.booleans(),
    share=SHARES,
)
def test_every_pixel_is_timms(
    mode: CropMode,
    interpolation: Interpolation,
    image: tuple[int, int],
    size: tuple[int, int],
    square: bool,
    share: float,
) -> None:
    if square:
        size = (size[0], size[0])
    assume(as_today(mode, size))
    preprocessing = Preprocessing(
        (3, *size), interpolation, (0.1, 0.5, 0.9), (0.5,) * 3, share, mode
    )
    picture = noise(*image, seed=image[0])
    try:
        theirs = of_timm(picture, preprocessing)
    except ValueError as error:
        # A strip of which timm leaves nothing gets one pixel here.
        assert "must be > 0" in str(error)
        assert to_input_size(picture, preprocessing).size == size[::-1]
        return
    np.testing.assert_array_equal(
        to_pixels(to_input_size(picture, preprocessing)), theirs
    )


@given(image=st.tuples(SIDES, SIDES), size=st.tuples(SIDES, SIDES))
def test_unresized_images_are_cropped_or_padded_with_black_as_hugging_face_does(
    image: tuple[int, int], size: tuple[int, int]
) -> None:
    center_crop = pytest.importorskip("transformers.image_transforms").center_crop
    preprocessing = Preprocessing(
        (3, *size),
        Interpolation.BICUBIC,
        (0.5,) * 3,
        (0.5,) * 3,
        1.0,
        CropMode.NONE,
        CropRounding.DOWN,
    )
    picture = noise(*image, seed=image[0])
    pixels = to_pixels(to_input_size(picture, preprocessing))
    np.testing.assert_array_equal(pixels, center_crop(to_pixels(picture), size))
