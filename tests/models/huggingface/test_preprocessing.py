"""An image processor's pixels are the library's own, or it is refused by name."""

import math
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image

from exporter.data.pixels import normalise, to_input_size, to_pixels
from exporter.errors import ModelError
from exporter.models.huggingface.kinds import KINDS
from exporter.models.huggingface.preprocessing import (
    PROCESSORS,
    WITHOUT_EFFECT,
    preprocessing_from_processor,
)
from exporter.models.spec import preprocessing_from

SIDE = st.one_of(st.just(8), st.integers(8, 40))  # the side of most crops below, and others
SQUARE = SIDE.map(lambda side: {"height": side, "width": side})
BOX = st.fixed_dictionaries({"height": SIDE, "width": SIDE})
EDGE = st.fixed_dictionaries({"shortest_edge": SIDE})
OTHER_SIZES = st.one_of(
    st.fixed_dictionaries({"shortest_edge": SIDE, "longest_edge": st.integers(41, 60)}),
    st.fixed_dictionaries({"longest_edge": SIDE}),
    st.fixed_dictionaries({"max_height": SIDE, "max_width": SIDE}),
)
CHANNELS = st.one_of(st.floats(0.2, 0.8), st.lists(st.floats(0.2, 0.8), min_size=3, max_size=3))


def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A value, or the class's own."""
    return st.one_of(st.none(), values)


CONFIGS = st.fixed_dictionaries(
    {
        "do_resize": st.sampled_from([None, True, True, True, False]),
        "size": st.one_of(
            SIDE, SQUARE, BOX, EDGE, EDGE, st.lists(SIDE, min_size=2, max_size=2), OTHER_SIZES
        ),
        "do_center_crop": st.sampled_from([None, True, True, True, False]),
        "crop_size": st.one_of(
            st.integers(4, 8), st.integers(4, 12), st.just({"height": 8, "width": 8}), BOX
        ),
        "resample": maybe(st.integers(0, 5)),
        "do_rescale": maybe(st.booleans()),
        "rescale_factor": maybe(st.sampled_from([1 / 255, 1 / 127.5, 0.5])),
        "do_normalize": maybe(st.booleans()),
        "image_mean": maybe(CHANNELS),
        "image_std": maybe(CHANNELS),
        "do_convert_rgb": maybe(st.booleans()),
        "do_pad": st.sampled_from([*[None] * 8, False, True]),
    }
)
IMAGES = st.tuples(st.integers(1, 90), st.integers(1, 90), st.integers(0, 9))
# What is refused, by the start of what the line says that it got.
SEVERAL = "images of several sizes"
REFUSALS = {
    "a crop of another shape": r"size=.* pixels cropped to",
    SEVERAL: r"do_resize=False|size=\{'(shortest|longest)_edge|size=\{'max_|size=\d+$",
    "two crops": r"crop_size=",
    "padding": r"do_pad=True",
    "a box for ConvNeXt": r"size=(\{'(height|width)'|\[)",
    "out of range": r"(mean|std)=\(",
}


def library_class(name: str) -> Any:
    """The library's class that resizes with Pillow; DINOv3's has torchvision alone."""
    pytest.importorskip(
        "transformers.image_processing_backends", reason="its classes differ before 5.0"
    )
    transformers = pytest.importorskip("transformers")
    plain = getattr(transformers, f"{name}ImageProcessor")
    return (
        getattr(transformers, f"{name}ImageProcessorPil", plain)
        if name != "DINOv3ViT"
        else plain
    )


def noise(height: int, width: int, seed: int) -> Image.Image:
    pixels = np.random.RandomState(seed).randint(0, 256, (height, width, 3))
    return Image.fromarray(pixels.astype(np.uint8))


def ours(name: str, told: Mapping[str, Any], image: Image.Image) -> np.ndarray:
    found = preprocessing_from_processor({"image_processor_type": name, **told}, {})
    preprocessing = preprocessing_from(found, found["input_size"][1:])
    return normalise(to_pixels(to_input_size(image, preprocessing)), preprocessing)


def gives_several_sizes(name: str, told: Mapping[str, Any]) -> bool:
    """Whether the library makes images of several sizes, or none; two limits, with a crop, are refused as well."""
    try:
        processor = library_class(name)(**told)
        shapes = {
            processor(noise(*size, 0))["pixel_values"][0].shape for size in ((16, 40), (40, 16))
        }
    except (AttributeError, ValueError):  # its own message fails for ConvNeXt
        return True
    return len(shapes) == 2 or set(told["size"]) in (
        {"shortest_edge", "longest_edge"},
        {"max_height", "max_width"},
    )


def plain(value: Any) -> Any:
    """A class's attribute as a file would say it."""
    if hasattr(value, "keys"):
        return {key: side for key, side in dict(value).items() if side is not None}
    return tuple(value) if isinstance(value, list | tuple) else value or None


@pytest.mark.parametrize("name", PROCESSORS)
def test_what_a_file_does_not_say_is_the_classs_own(name: str) -> None:
    row, cls = PROCESSORS[name], library_class(name)
    for key, value in row.items():
        assert plain(value) == plain(getattr(cls, key, None)), key
    for key in cls.valid_kwargs.__annotations__:
        assert key in (*row, *WITHOUT_EFFECT) or not getattr(cls, key, None), key


@pytest.mark.parametrize("kind", KINDS)
def test_a_class_that_no_file_names_is_the_one_that_the_library_chooses(kind: str) -> None:
    auto = pytest.importorskip("transformers.models.auto.image_processing_auto")
    of = {
        "ViTFor": "vit",
        "DeiT": "deit",
        "CLIP": "clip",
        "Siglip": "siglip",
        "DINOv3": "dinov3_vit",
    }
    model = next((word for start, word in of.items() if kind.startswith(start)), "dinov2")
    assert f"{KINDS[kind].processor}ImageProcessor" in str(
        auto.IMAGE_PROCESSOR_MAPPING_NAMES[model]
    )


def test_its_pixels_are_the_librarys_for_any_settings() -> None:
    seen: Counter[str] = Counter()

    @settings(max_examples=300)
    @given(
        name=st.sampled_from([name for name in PROCESSORS if name != "DINOv3ViT"]),
        form=st.sampled_from(["ImageProcessor", "ImageProcessorFast", "FeatureExtractor"]),
        drawn=CONFIGS,
        image=IMAGES,
    )
    def compare(
        name: str, form: str, drawn: dict[str, Any], image: tuple[int, int, int]
    ) -> None:
        told, picture = (
            {key: value for key, value in drawn.items() if value is not None},
            noise(*image),
        )
        try:
            mine = ours(f"{name}{form}", told, picture)
        except ModelError as error:
            reasons = [reason for reason, text in REFUSALS.items() if re.match(text, error.got)]
            assert reasons and "\n" not in str(error), error
            assert reasons[0] != SEVERAL or gives_several_sizes(name, told)
            seen[reasons[0]] += 1
            return
        theirs = library_class(name)(**told)(picture, return_tensors="np")["pixel_values"][0]
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)
        seen["carried"] += 1

    compare()
    assert seen["carried"] > seen.total() / 5, seen


@given(name=st.sampled_from([name for name in PROCESSORS if name != "DINOv3ViT"]), image=IMAGES)
@example(name="Bit", image=(11, 20, 0))  # resized to 224 × 407: the centre begins at 91.5
@settings(max_examples=20)
def test_a_class_alone_is_enough(name: str, image: tuple[int, int, int]) -> None:
    cls, picture = library_class(name), noise(*image)
    theirs = cls()(picture, return_tensors="np")["pixel_values"][0]
    np.testing.assert_allclose(
        ours(f"{name}ImageProcessor", {}, picture), theirs, rtol=1e-5, atol=1e-5
    )


@given(image=IMAGES, side=SIDE)
@settings(max_examples=40)
def test_dinov3_differs_by_the_rounding_of_pixels_to_8_bits(
    image: tuple[int, int, int], side: int
) -> None:
    cls, picture = library_class("DINOv3ViT"), noise(*image)
    told = {
        "size": {"height": side, "width": side},
        "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3,
    }
    theirs = cls(**told)(picture, return_tensors="np")["pixel_values"][0]
    # Pillow rounds twice, after the rows and after the columns.
    assert (
        np.abs(ours("DINOv3ViTImageProcessorFast", told, picture) - theirs).max()
        <= 1.01 / 255 / 0.5
    )


@pytest.mark.parametrize(
    ("told", "named"),
    [
        (
            {"image_processor_type": "LlavaNextImageProcessor"},
            "'LlavaNextImageProcessor' | need one of Beit,",
        ),
        ({"do_flip_channel_order": True}, "do_flip_channel_order=True"),
        ({"crop_pct": 0.9}, "crop_pct=0.9"),
        ({"do_resize": "false"}, "do_resize='false' | need true or false"),
        (
            {"size": {"shortest_edge": 32}},
            "size={'shortest_edge': 32} | need a crop, or height and width",
        ),
        ({"size": {"height": 10**9, "width": 8}}, "size={'height': 1000000000"),
        ({"do_center_crop": True}, "crop_size=None"),
        (
            {"do_center_crop": True, "crop_size": {"shortest_edge": 8}},
            "crop_size={'shortest_edge': 8}",
        ),
        ({"size": 24, "do_center_crop": True, "crop_size": 32}, "size=24 crop_size=32"),
        ({"resample": "bicubic"}, "resample='bicubic'"),
        ({"image_mean": [0.5]}, "image_mean=[0.5]"),
        ({"image_mean": [0.5, math.nan, 0.5]}, "image_mean="),
    ],
)
def test_what_is_not_done_here_is_refused_by_name(told: dict[str, Any], named: str) -> None:
    with pytest.raises(ModelError) as error:
        preprocessing_from_processor(told, {}, source="file")
    assert named in str(error.value) and str(error.value).startswith("file | got ")
    assert "\n" not in str(error.value)


def test_without_a_file_it_is_the_usual_one_of_the_kind() -> None:
    usual = {"mean": (0.9,) * 3, "crop_mode": "center"}
    found = preprocessing_from_processor({}, usual)
    assert found == {
        **found,
        **usual,
        "std": (0.5,) * 3,
        "interpolation": "bilinear",
        "crop_pct": 1.0,
    }
