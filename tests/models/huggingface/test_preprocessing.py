"""Our pixels are those of the library's image processor, or it is refused by its name and setting."""

from collections import Counter
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import transformers
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from exporter.core.base.errors import ModelError
from exporter.core.base.records import normalise
from exporter.core.vit.spec import preprocessing_from
from exporter.data.pixels import to_input_size, to_pixels
from exporter.models.huggingface.kinds import KINDS
from exporter.models.huggingface.preprocessing import (
    GREY_LEVELS,
    preprocessing_of,
    usual_preprocessing,
)

# The processors of the kinds that are converted, and others that public folders name.
NAMES = ("Beit", "Bit", "Blip", "ChineseCLIP", "CLIP", "DeiT", "Siglip", "ViT")
CLASSES = {
    cls.__name__: cls
    for cls in (
        *(
            getattr(transformers, f"{name}ImageProcessor")
            for name in (*NAMES, "DINOv3ViT")
        ),
        *(getattr(transformers, f"{name}ImageProcessorPil") for name in NAMES),
    )
}

# the side of most crops below, and others
SIDE = st.one_of(st.just(8), st.integers(8, 40))
BOX = st.fixed_dictionaries({"height": SIDE, "width": SIDE})
EDGE = st.fixed_dictionaries({"shortest_edge": SIDE})
SEVERAL_SIZES = st.one_of(
    st.fixed_dictionaries({"shortest_edge": SIDE, "longest_edge": st.integers(41, 60)}),
    st.fixed_dictionaries({"longest_edge": SIDE}),
    st.fixed_dictionaries({"max_height": SIDE, "max_width": SIDE}),
)
CHANNELS = st.one_of(
    st.floats(0.2, 0.8), st.lists(st.floats(0.2, 0.8), min_size=3, max_size=3)
)


def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A value, or the class's own."""
    return st.one_of(st.none(), values)


SETTINGS = st.fixed_dictionaries(
    {
        "do_resize": st.sampled_from([None, True, True, True, False]),
        "size": st.one_of(SIDE, BOX, EDGE, EDGE, SEVERAL_SIZES),
        "do_center_crop": st.sampled_from([None, True, True, True, False]),
        "crop_size": st.one_of(
            st.integers(4, 8), st.just({"height": 8, "width": 8}), BOX
        ),
        "resample": maybe(st.sampled_from([2, 3])),
        "do_rescale": maybe(st.booleans()),
        "rescale_factor": maybe(st.sampled_from([1 / 255, 1 / 127.5, 0.5])),
        "do_normalize": maybe(st.booleans()),
        "image_mean": maybe(CHANNELS),
        "image_std": maybe(CHANNELS),
        "do_convert_rgb": maybe(st.booleans()),
        "do_pad": st.sampled_from([*[None] * 8, False, True]),
    }
)
# What the library raises of settings that it does not support, and of strips of which nothing is left.
OWN_ERRORS = (AttributeError, RuntimeError, TypeError, ValueError)
SHAPES = st.tuples(st.integers(1, 90), st.integers(1, 90))


def noise(height: int, width: int) -> Image.Image:
    pixels = np.random.default_rng(height).integers(
        0, 256, (height, width, 3), np.uint8
    )
    return Image.fromarray(pixels)


def grey_levels(processor: Any, image: Image.Image) -> np.ndarray:
    """How far our pixels are from the processor's, in 256ths of white."""
    values = preprocessing_of(processor, "file")
    preprocessing = preprocessing_from(values, values["input_size"][1:])
    pixels = normalise(to_pixels(to_input_size(image, preprocessing)), preprocessing)
    expected = processor(image, return_tensors="np")["pixel_values"][0]
    return np.abs(pixels - expected) * np.reshape(preprocessing.std, (3, 1, 1)) * 255


def is_refused_rightly(processor: Any, error: ModelError) -> bool:
    """Whether the library makes images of several sizes, or none, or fills up small ones in another way."""
    if error.got.startswith(("size=", "mean=", "std=")):
        return True
    if not processor.do_resize and not type(processor).__name__.endswith("Pil"):
        return True
    shapes = {
        processor(noise(*size), return_tensors="np")["pixel_values"].shape
        for size in ((60, 90), (90, 60), (170, 80))
    }
    return len(shapes) > 1


def test_its_pixels_are_the_librarys_for_any_settings() -> None:
    outcomes: Counter[bool] = Counter()

    @given(name=st.sampled_from([*CLASSES]), drawn=SETTINGS, shape=SHAPES)
    def compare(name: str, drawn: dict[str, Any], shape: tuple[int, int]) -> None:
        processor = CLASSES[name](
            **{key: value for key, value in drawn.items() if value is not None}
        )
        runs = False
        with suppress(*OWN_ERRORS):
            processor(noise(*shape))
            runs = True
        if runs:
            compare_pixels(name, processor, shape)

    def compare_pixels(name: str, processor: Any, shape: tuple[int, int]) -> None:
        try:
            difference = grey_levels(processor, noise(*shape))
        except ModelError as error:
            assert is_refused_rightly(processor, error), error
            assert str(error).isprintable()
            outcomes[False] += 1
            return
        if name.endswith("Pil"):
            assert difference.max() < 0.01
        else:
            assert difference.mean() < 1
        outcomes[True] += 1

    compare()
    assert outcomes[True] > outcomes.total() / 5, outcomes


@pytest.mark.parametrize("backend", ["", "Pil"])
def test_images_smaller_than_a_crop_without_a_resize(backend: str) -> None:
    """The two backends of the library fill them up otherwise: ours is one, the other is refused."""
    processor = CLASSES[f"CLIPImageProcessor{backend}"](do_resize=False, crop_size=8)
    if backend:
        assert grey_levels(processor, noise(5, 7)).max() < 0.01
        return
    with pytest.raises(ModelError, match="pixels of 5 × 5 that differ"):
        preprocessing_of(processor, "file")


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("shape", [(333, 501), (501, 333), (11, 20), (225, 224)])
def test_photographs_by_every_class_as_it_comes(
    name: str, shape: tuple[int, int]
) -> None:
    """Those that resize with torchvision round otherwise than Pillow; those with Pillow are exact."""
    difference = grey_levels(CLASSES[name](), noise(*shape))
    assert difference.mean() < (0.01 if name.endswith("Pil") else GREY_LEVELS)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        (
            "LlavaNext",
            {},
            "pixels of shape .* by LlavaNextImageProcessor with do_pad=True",
        ),
        (
            "Levit",
            {},
            "differ from ours by .* grey levels by LevitImageProcessor . need one size",
        ),
        (
            "MobileViT",
            {"size": {"shortest_edge": 256}},
            "grey levels by MobileViTImageProcessor with do_flip_channel_order=True",
        ),
        ("ConvNext", {}, "grey levels by ConvNextImageProcessor"),
        (
            "ViT",
            {"do_pad": True, "pad_size": {"height": 300, "width": 300}},
            "with do_pad=True",
        ),
        ("ViT", {"size": {"height": 10**9, "width": 8}}, "a size of 1000000000 pixels"),
        (
            "ViT",
            {"size": 24, "do_center_crop": True, "crop_size": 32},
            "24 × 24 pixels cropped",
        ),
        (
            "ViT",
            {"do_resize": False},
            "pixels of shape .* and .* for two images by ViT",
        ),
        (
            "CLIP",
            {"do_center_crop": False},
            "pixels of shape .* and .* for two images by CLIP",
        ),
        ("ViT", {"image_mean": 5}, "mean="),
    ],
)
def test_what_is_not_done_here_is_refused_by_name(
    name: str, values: dict[str, Any], message: str
) -> None:
    processor = getattr(transformers, f"{name}ImageProcessor")(**values)
    with pytest.raises(ModelError, match=message) as caught:
        preprocessing_of(processor, "file")
    assert (
        str(caught.value).startswith("file | got ") and str(caught.value).isprintable()
    )


def test_without_a_processor_it_is_the_usual_one_of_the_kind() -> None:
    plain = usual_preprocessing(KINDS["ViTForImageClassification"])
    assert (plain["std"], plain["interpolation"]) == ((0.5,) * 3, "bilinear")
    assert usual_preprocessing(KINDS["CLIPVisionModel"])["crop_mode"] == "center"
    for name in (
        "CLIPVisionModel",
        "SiglipVisionModel",
        "Dinov2Model",
        "DINOv3ViTModel",
    ):
        assert usual_preprocessing(KINDS[name])["interpolation"] == "bicubic"
