"""The weights that come with the package are those of their record, small, and as good as it says."""

import runpy
from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import load_file
from timm.data import create_transform, resolve_data_config
from torch import nn
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder

from exporter.bundled import DIGITS_VIT
from exporter.files import sha256_of
from exporter.records import load_json
from exporter.training.result import TrainRecord

DIGITS_SCRIPT = Path(__file__).parents[2] / "calib_data" / "digits.py"


@pytest.fixture(scope="module")
def record() -> TrainRecord:
    return load_json(TrainRecord, DIGITS_VIT.record)


@pytest.fixture(scope="module")
def model() -> nn.Module:
    vit: nn.Module = timm.create_model(
        DIGITS_VIT.architecture, num_classes=DIGITS_VIT.num_classes, **DIGITS_VIT.model_kwargs
    )
    vit.load_state_dict(load_file(DIGITS_VIT.weights), strict=True)
    return vit.eval()


@pytest.fixture(scope="module")
def digits_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("digits") / "images"
    runpy.run_path(str(DIGITS_SCRIPT))["write_digits"](out)
    return out


def test_file_is_small_and_half_precision(record: TrainRecord) -> None:
    assert DIGITS_VIT.weights.stat().st_size <= 8_000_000
    assert {torch.float16} == {value.dtype for value in load_file(DIGITS_VIT.weights).values()}
    assert record.weights_sha256 == sha256_of(DIGITS_VIT.weights)


def test_declaration_agrees_with_the_record(record: TrainRecord) -> None:
    assert record.settings.model == DIGITS_VIT.architecture
    assert record.class_names == DIGITS_VIT.class_names
    assert dict(DIGITS_VIT.model_kwargs).items() <= {**record.settings.model_kwargs, "depth": 12}.items()
    for key, value in DIGITS_VIT.preprocessing.items():
        assert getattr(record.preprocessing, key) == value


def test_shape_is_a_small_deit(model: nn.Module, record: TrainRecord) -> None:
    assert isinstance(model, timm.models.VisionTransformer)
    assert len(model.blocks) == 12
    assert model.patch_embed.num_patches == 196
    assert model.num_prefix_tokens == 1
    assert record.parameters == sum(parameter.numel() for parameter in model.parameters())


def test_accuracy_of_the_record_is_reproduced(
    model: nn.Module, record: TrainRecord, digits_folder: Path
) -> None:
    config = resolve_data_config(
        {"input_size": record.preprocessing.input_size, **DIGITS_VIT.preprocessing}, model=model
    )
    images = ImageFolder(str(digits_folder / "held_out"), create_transform(**config, is_training=False))
    assert record.images_held_out == len(images)
    with torch.inference_mode():
        right = sum(int((model(x).argmax(1) == y).sum()) for x, y in DataLoader(images, batch_size=64))
    assert right / len(images) >= 0.97
    assert abs(right / len(images) - record.top1_held_out) <= 2 / len(images)
