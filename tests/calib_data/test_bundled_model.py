"""The weights that come with the package are those of their records, small, and as good as these say."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import PIL
import pytest
import timm
import torch
from safetensors.torch import load_file
from torch import nn

from exporter.bundled import (
    CIFAR_VIT,
    DIGITS_VIT,
    MODELS,
    OFFSET_DIGITS_VIT,
    BundledModel,
)
from exporter.core.base.canonical_json import load_json
from exporter.core.base.files import sha256_of
from exporter.core.base.vocabulary import CropRounding
from exporter.data.batches import batches
from exporter.measure.accuracy import predict_each
from exporter.models.registry import describe, load
from exporter.models.request import ModelRequest
from tests.calib_data.tiny import TRAIN
from tests.digits import digits

# A folder that holds CIFAR-10 as train/<class>/ and test/<class>/; the images are not bundled.
CIFAR = "STAR_EXPORT_CIFAR10"
LEAST_TOP1 = {DIGITS_VIT.name: 0.97, OFFSET_DIGITS_VIT.name: 0.9, CIFAR_VIT.name: 0.7}
MOST_BYTES = {
    DIGITS_VIT.name: 5_000_000,
    OFFSET_DIGITS_VIT.name: 5_000_000,
    CIFAR_VIT.name: 10_000_000,
}
DIGIT_SETS = {DIGITS_VIT.name: "digits", OFFSET_DIGITS_VIT.name: "offset-digits"}

each_model = pytest.mark.parametrize("bundled", MODELS.values(), ids=MODELS)
with_images = pytest.mark.parametrize(
    ("bundled", "folders"),
    [(model, model.name) for model in MODELS.values()],
    indirect=["folders"],
)


def record_of(bundled: BundledModel) -> Any:
    return load_json(TRAIN.TrainRecord, bundled.weights.with_suffix(".json"))


def network_of(bundled: BundledModel) -> nn.Module:
    """timm's own module, without an adapter."""
    vit: nn.Module = timm.create_model(bundled.architecture, **bundled.model_kwargs)
    vit.load_state_dict(load_file(bundled.weights), strict=True)
    return vit.eval()


@pytest.fixture(scope="module")
def folders(request: pytest.FixtureRequest) -> Any:
    """The images of a bundled model."""
    if request.param == CIFAR_VIT.name:
        if CIFAR not in os.environ:
            pytest.skip(f"CIFAR-10 is not bundled: {CIFAR} names its folder")
        root = Path(os.environ[CIFAR])
        return TRAIN.open_folders(root / "train", root / "test")
    place = digits(DIGIT_SETS[request.param])
    return TRAIN.open_folders(place / "train", place / "held_out")


@each_model
def test_file_is_small_and_half_precision(bundled: BundledModel) -> None:
    assert bundled.weights.stat().st_size <= MOST_BYTES[bundled.name]
    assert {torch.float16} == {
        value.dtype for value in load_file(bundled.weights).values()
    }
    assert record_of(bundled).weights_sha256 == sha256_of(bundled.weights)


@each_model
def test_what_comes_with_a_name_is_that_of_its_training(bundled: BundledModel) -> None:
    spec, record = describe(ModelRequest(bundled.name)).spec, record_of(bundled)
    trained = replace(record.preprocessing, crop_rounding=CropRounding.DOWN)
    assert (spec.preprocessing, spec.class_names) == (trained, record.class_names)
    assert len(set(spec.class_names)) == spec.num_classes == 10


@each_model
def test_name_loads_these_weights(bundled: BundledModel) -> None:
    loaded = load(ModelRequest(bundled.name)).model.state_dict()
    for name, value in network_of(bundled).state_dict().items():
        assert torch.equal(loaded[name], value)


@pytest.mark.exhaustive
@with_images
def test_accuracy_of_the_record_is_reproduced(
    bundled: BundledModel, folders: Any
) -> None:
    record = record_of(bundled)
    runner = TRAIN.logits_runner(network_of(bundled), record.preprocessing.input_size)
    loaded = batches(folders.held_out.files, record.preprocessing, "float32", 64)
    (predictions,) = predict_each(
        [runner], (((images,), labels) for images, labels in loaded)
    )
    found = predictions.accuracy
    assert found.images == record.images_held_out
    assert folders.class_names == record.class_names
    assert found.top1 >= LEAST_TOP1[bundled.name]
    assert abs(found.top1 - record.top1_held_out) <= 2 / found.images


@with_images
def test_record_names_the_images(bundled: BundledModel, folders: Any) -> None:
    record = record_of(bundled)
    if bundled is not CIFAR_VIT and PIL.__version__ != record.versions["pillow"]:
        pytest.skip(
            f"Pillow {PIL.__version__} may write other PNG files than {record.versions['pillow']}"
        )
    assert record.images_train_sha256 == TRAIN.folder_sha256(folders.train)
    assert record.images_held_out_sha256 == TRAIN.folder_sha256(folders.held_out)
