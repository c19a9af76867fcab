"""The recorded preprocessing is the one applied; unsupported values are refused on input."""

import math
import re
from typing import Any

import pytest

from exporter.core.base.errors import ModelError
from exporter.core.vit.protocol import Classifier
from exporter.core.vit.spec import LEAST_CROP, crop_share, preprocessing_from, spec_of
from tests.vits import make_vit

CONFIG = {
    "interpolation": "bicubic",
    "mean": (0.5, 0.4, 0.3),
    "std": (0.5, 0.5, 0.5),
    "crop_pct": 0.9,
    "crop_mode": "squash",
}


def test_a_share_gives_back_the_size_that_it_is_of() -> None:
    for side in (*range(1, 130), 224, 336, 384, 518, 1022):
        for whole in range(side, min(side / LEAST_CROP, 1100).__trunc__() + 1):
            share = crop_share((side, side), (whole, whole))
            assert math.floor(side / share) == whole
            assert (
                preprocessing_from({**CONFIG, "crop_pct": share}, (side, side)).crop_pct
                == share
            )
    assert crop_share((224, 224), (256, 256)) == 0.875
    assert crop_share((224, 192), (224, 192)) == 1
    assert crop_share((112, 96), (224, 192)) == 0.5


@pytest.mark.parametrize(
    ("size", "scaled"), [((8, 8), (7, 7)), ((8, 8), (8, 16)), ((8, 16), (16, 16))]
)
def test_a_crop_that_no_share_gives(
    size: tuple[int, int], scaled: tuple[int, int]
) -> None:
    with pytest.raises(
        ValueError, match=f"{scaled[0]} × {scaled[1]} pixels cropped to {size[0]}"
    ):
        crop_share(size, scaled)


@pytest.mark.parametrize(
    "wrong", [{"crop_pct": True}, {"crop_pct": "0.9"}, {"mean": ("0.5", 0.4, 0.3)}]
)
def test_texts_and_truth_are_no_numbers_of_a_preprocessing(
    wrong: dict[str, Any],
) -> None:
    with pytest.raises(ModelError, match="need numbers, three for mean"):
        preprocessing_from({**CONFIG, **wrong}, (8, 8))


def test_a_grid_that_is_not_that_of_the_tokens_is_refused() -> None:
    """timm pads an image of 30 pixels to four patches of 8, and counts three."""
    kwargs: dict[str, Any] = {
        "img_size": 30,
        "dynamic_img_size": True,
        "dynamic_img_pad": True,
    }
    expected = "17 tokens of an image of 30 × 30 | need 10, as its grid has"
    with pytest.raises(ModelError, match=re.escape(expected)):
        make_vit(**kwargs)


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ((), 1),
        ((0,), 1),
        ((0, 0), 1),
        ((1, 0), 2),
        ((1,), "tokens 1 "),
        ((0, 2), "tokens 0, 2 "),
    ],
)
def test_class_tokens_are_the_first_that_classifiers_read(
    tokens: tuple[int, ...], expected: int | str
) -> None:
    vit: Any = make_vit("registers")
    vit.classifiers = [Classifier(token, vit.model.head) for token in tokens]
    kept = {
        "grid": vit.spec.grid,
        "num_prefix_tokens": 5,
        "preprocessing": vit.spec.preprocessing,
    }
    if isinstance(expected, int):
        assert spec_of(vit, "mine", **kept).num_class_tokens == expected
        return
    with pytest.raises(ModelError, match=f"mine .* {expected}.* from token 0"):
        spec_of(vit, "mine", **kept)
