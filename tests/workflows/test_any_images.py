"""A folder, an array or a loader: the images of a model, and what it takes of them."""

from pathlib import Path

import numpy as np
import pytest

from exporter.errors import ImageError
from exporter.models.base import PrunableViT
from exporter.vocabulary import InputKind
from exporter.workflows.steps import MOST, array_of, folder_of
from tests.vits import random_images


def test_a_folder_by_text_or_path(tiny_vit: PrunableViT, image_folder: Path) -> None:
    by_text, by_path = (folder_of(place, tiny_vit.spec) for place in (str(image_folder), image_folder))
    assert by_text == by_path
    assert len(by_text.files) == 6
    assert array_of(image_folder, tiny_vit.spec, InputKind.UINT8).dtype == np.uint8


def test_the_first_of_a_loader_and_all_of_an_array(tiny_vit: PrunableViT) -> None:
    images = random_images(tiny_vit, 5).numpy()
    assert len(folder_of([images, images], tiny_vit.spec, 7).files) == 7
    assert len(folder_of(images, tiny_vit.spec, 3).files) == 5


def test_normalised_images_stay_as_they_are(tiny_vit: PrunableViT) -> None:
    images = random_images(tiny_vit, 5).numpy()
    assert np.array_equal(array_of(images, tiny_vit.spec, InputKind.FLOAT32), images)


def test_no_more_are_taken_than_a_check_needs(tiny_vit: PrunableViT) -> None:
    images = np.zeros((MOST + 1, *tiny_vit.spec.preprocessing.input_size), np.uint8)
    assert len(array_of(images, tiny_vit.spec, InputKind.FLOAT32)) == MOST


def test_a_model_of_pixels_takes_no_normalised_images(tiny_vit: PrunableViT) -> None:
    images = random_images(tiny_vit, 2).numpy()
    with pytest.raises(ImageError, match="float32"):
        array_of(images, tiny_vit.spec, InputKind.UINT8)
