"""An image processor's config under timm's keys."""

from typing import Any

import pytest

from exporter.models.huggingface.preprocessing import preprocessing_from_processor


@pytest.mark.parametrize(
    ("processor", "expected"),
    [
        ({}, ("bilinear", "squash", 1.0)),
        ({"resample": 3, "size": 32}, ("bicubic", "squash", 1.0)),
        (
            {"resample": 3, "size": {"height": 64, "width": 64}, "do_center_crop": True, "crop_size": 32},
            ("bicubic", "squash", 0.5),
        ),
        (
            {"size": {"shortest_edge": 40}, "do_center_crop": True, "crop_size": {"height": 32, "width": 32}},
            ("bilinear", "center", 0.8),
        ),
    ],
)
def test_it_is_the_processors(processor: dict[str, Any], expected: tuple[str, str, float]) -> None:
    found = preprocessing_from_processor({"image_mean": [0.1, 0.2, 0.3], **processor}, {"mean": (0.9,) * 3})
    assert (found["interpolation"], found["crop_mode"], found["crop_pct"]) == expected
    assert (found["mean"], found["std"]) == ((0.1, 0.2, 0.3), (0.5, 0.5, 0.5))


def test_without_one_it_is_the_usual_one_of_the_kind() -> None:
    usual = {"mean": (0.9,) * 3, "crop_mode": "center"}
    found = preprocessing_from_processor({}, usual)
    assert found == {**found, **usual, "std": (0.5,) * 3, "interpolation": "bilinear", "crop_pct": 1.0}
