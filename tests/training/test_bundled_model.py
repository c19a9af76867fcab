"""The weights that come with the package are those of their record, small, and as good as it says."""

import runpy
from pathlib import Path

import PIL
import pytest
import timm
import torch
from safetensors.torch import load_file
from torch import nn

from exporter.bundled import DIGITS_VIT
from exporter.data.batches import batches
from exporter.data.images import folder_sha256
from exporter.evaluation.accuracy import evaluate
from exporter.files import sha256_of
from exporter.formats.canonical_json import load_json
from exporter.runtimes.torch_runner import logits_runner
from exporter.training.data import Folders, open_folders
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
def digits(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    out = tmp_path_factory.mktemp("digits") / "images"
    runpy.run_path(str(DIGITS_SCRIPT))["write_digits"](out)
    return open_folders(out / "train", out / "held_out")


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


def test_accuracy_of_the_record_is_reproduced(model: nn.Module, record: TrainRecord, digits: Folders) -> None:
    runner = logits_runner(model, record.preprocessing.input_size)
    found = evaluate(runner, batches(digits.held_out.files, record.preprocessing, "float32", 64))
    assert (found.images, digits.class_names) == (record.images_held_out, record.class_names)
    assert found.top1 >= 0.97
    assert abs(found.top1 - record.top1_held_out) <= 2 / found.images


def test_record_names_the_images(record: TrainRecord, digits: Folders) -> None:
    if PIL.__version__ != record.versions["pillow"]:
        pytest.skip(f"Pillow {PIL.__version__} may write other PNG files than {record.versions['pillow']}")
    assert record.images_train_sha256 == folder_sha256(digits.train)
    assert record.images_held_out_sha256 == folder_sha256(digits.held_out)
