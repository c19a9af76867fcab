"""What is written of trained weights: rounded under timm's keys, measured as they were written, and described."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from exporter.errors import OutputError
from exporter.files import sha256_of
from exporter.formats.canonical_json import load_json
from exporter.records import Preprocessing
from exporter.training.data import open_folders
from exporter.training.model import build_model, preprocessing_for
from exporter.training.result import TrainRecord, versions, write_result
from exporter.training.settings import TrainSettings
from tests.training.tiny import TINY, write_images


def written(
    images: Path, out: Path, settings: TrainSettings = TINY, held_out: Path | None = None
) -> tuple[nn.Module, Preprocessing, TrainRecord]:
    """A model that nobody trained, its preprocessing, and the record of it."""
    model = build_model(settings, 3)
    preprocessing = preprocessing_for(model, settings, 3)
    folders = open_folders(images, held_out or images)
    record = write_result(model, settings, out, preprocessing=preprocessing, folders=folders, command="train")
    return model, preprocessing, record


def test_the_record_says_where_the_weights_come_from(images: Path, tmp_path: Path) -> None:
    out = tmp_path / "vit.safetensors"
    held_out = write_images(tmp_path / "held out", classes=3, count=2)
    model, preprocessing, record = written(images, out, held_out=held_out)
    assert record == load_json(TrainRecord, out.with_suffix(".json"))
    assert (record.settings, record.epochs, record.command) == (TINY, 2, "train")
    assert record.class_names == ("class0", "class1", "class2")
    assert (record.images_train, record.images_held_out) == (9, 6)
    assert record.images_train_sha256 != record.images_held_out_sha256
    assert record.preprocessing == preprocessing
    assert (preprocessing.input_size, preprocessing.crop_pct) == ((3, 16, 16), 1.0)
    assert record.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert record.weights_sha256 == sha256_of(out)
    assert str(images) not in out.with_suffix(".json").read_text()


@pytest.mark.parametrize(("fp16", "dtype"), [(True, torch.float16), (False, torch.float32)])
def test_weights_are_rounded_under_timms_keys(
    images: Path, tmp_path: Path, fp16: bool, dtype: torch.dtype
) -> None:
    out = tmp_path / "vit.safetensors"
    model, _, _ = written(images, out, replace(TINY, fp16=fp16))
    state, expected = load_file(out), model.state_dict()
    assert set(state) == set(expected)
    assert {value.dtype for value in state.values()} == {dtype}
    assert all(torch.equal(value, expected[name].to(dtype)) for name, value in state.items())


def test_accuracy_is_that_of_the_images(images: Path, tmp_path: Path) -> None:
    """A model that gives one class to all is right on that class's share."""
    model = build_model(TINY, 3)
    state = model.state_dict()
    state["head.weight"].zero_()
    state["head.bias"].copy_(torch.tensor([0.0, 1.0, 0.0]))
    folders = open_folders(images, images)
    preprocessing = preprocessing_for(model, TINY, 3)
    out = tmp_path / "vit.safetensors"
    record = write_result(model, TINY, out, preprocessing=preprocessing, folders=folders, command="")
    assert record.top1_train == record.top1_held_out == pytest.approx(1 / 3)


def test_a_place_that_cannot_be_written(images: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    with pytest.raises(OutputError, match="taken"):
        written(images, tmp_path / "taken" / "vit.safetensors")


def test_versions_are_of_what_decides_the_result() -> None:
    assert set(versions()) == {"pillow", "python", "timm", "torch", "torchvision"}
    assert versions()["torch"] == torch.__version__
