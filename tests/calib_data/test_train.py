"""Training from scratch, of a tiny ViT on a handful of images: what a run leaves, and what it refuses."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from exporter.core.base.canonical_json import load_json
from exporter.core.base.errors import ImageError, ModelError
from exporter.core.base.files import sha256_of
from exporter.core.base.records import Preprocessing
from tests.calib_data.tiny import QUIET, SHAPE, TINY, TRAIN
from tests.power_cuts import cut_after
from tests.vits import make_images

TrainSettings = TRAIN.TrainSettings
train_folder = TRAIN.train_folder
open_folders = TRAIN.open_folders
build_model, build_student = TRAIN.build_model, TRAIN.build_student
preprocessing_for, write_result = TRAIN.preprocessing_for, TRAIN.write_result

MODELS: list[tuple[str, dict[str, Any], int]] = [
    ("vit_tiny_patch16_224", SHAPE, 16),
    ("vit_tiny_patch16_224", {**SHAPE, "global_pool": "avg"}, 16),
    ("digits_vit", {"depth": 2}, 56),
    ("lvvit_s", {"img_size": 32, "dim": 32, "num_heads": 2, "depth": 2}, 32),
]


@pytest.fixture(scope="module")
def trained(images: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole") / "vit.safetensors"
    train_folder(images, images, out, TINY, QUIET)
    return out


def test_interrupted_run_ends_with_the_same_bytes(
    images: Path, trained: Path, tmp_path: Path
) -> None:
    out = tmp_path / "vit.safetensors"
    with cut_after(1):
        train_folder(images, images, out, TINY, QUIET)
    assert not out.exists()
    train_folder(images, images, out, TINY, QUIET)
    assert trained.read_bytes() == out.read_bytes()
    assert (
        trained.with_suffix(".json").read_bytes()
        == out.with_suffix(".json").read_bytes()
    )


def test_what_is_no_vit_is_refused(images: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="a ViT of a known family"):
        train_folder(
            images,
            images,
            tmp_path / "vit.safetensors",
            TrainSettings(model="resnet18"),
            QUIET,
        )


def test_it_states_itself_in_the_record(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "vit.safetensors"
    shape = [f"{name}={value}" for name, value in SHAPE.items()]
    flags = [
        "--epochs",
        "1",
        "--lr",
        "1e-4",
        "--warmup-epochs",
        "0",
        "--no-fp16",
        "--model-kwargs",
    ]
    assert TRAIN.main([*places(images, out), *flags, *shape]) == 0
    record = json.loads(out.with_suffix(".json").read_text())
    assert record["command"].startswith("python calib_data/train.py --images")
    assert record["settings"]["model_kwargs"] == SHAPE
    assert record["settings"]["min_lr"] == 1e-6
    assert record["settings"]["batch_size"] == 64
    assert {torch.float32} == {value.dtype for value in load_file(out).values()}
    shown = capsys.readouterr().err
    assert f"{out}: " in shown
    assert f"{record['top1_held_out']:.2%}" in shown


def places(images: Path, out: Path) -> list[str]:
    return ["--images", str(images), "--held-out", str(images), "--out", str(out)]


@pytest.mark.parametrize("flags", ["--epochs 0", "--images none", "--out vit.pt"])
def test_what_a_user_can_mend_is_one_line_and_code_2(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: str
) -> None:
    flag, value = flags.split()
    assert TRAIN.main([*places(images, tmp_path / "vit.safetensors"), flag, value]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert flag.removeprefix("--") in line or value in line
    assert list(tmp_path.iterdir()) == []


def test_other_classes_are_refused(images: Path, tmp_path: Path) -> None:
    fewer = make_images(tmp_path / "fewer", classes=2, side=8)
    with pytest.raises(ImageError, match="first: 'class_2'"):
        open_folders(images, fewer)
    alone = make_images(tmp_path / "alone", classes=1, side=8)
    with pytest.raises(ImageError, match="at least 2 folders"):
        open_folders(alone, alone)
    with pytest.raises(ImageError, match="one folder of images per class"):
        open_folders(tmp_path / "none", images)


@pytest.mark.parametrize(("name", "kwargs", "side"), MODELS)
def test_a_model_of_any_name_gives_logits_of_the_classes(
    name: str, kwargs: dict[str, Any], side: int
) -> None:
    settings = TrainSettings(
        model=name, model_kwargs=kwargs, mean=(0.1, 0.2, 0.3), crop_pct=0.7
    )
    model = build_student(settings, 5)
    preprocessing = preprocessing_for(model, settings, 5)
    assert preprocessing.input_size == (3, side, side)
    assert (preprocessing.mean, preprocessing.crop_pct) == ((0.1, 0.2, 0.3), 0.7)
    assert model(torch.zeros(2, 3, side, side)).shape == (2, 5)
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_small_epochs_need_a_model_of_any_size() -> None:
    settings = TrainSettings(model_kwargs=SHAPE, small_epochs=1)
    assert build_student(settings, 3)(torch.zeros(1, 3, 8, 8)).shape == (1, 3)
    lvvit = TrainSettings(model="lvvit_s", small_epochs=1)
    with pytest.raises(ModelError, match="dynamic_img_size"):
        build_student(lvvit, 3)


def written(
    images: Path, out: Path, settings: Any = TINY, held_out: Path | None = None
) -> tuple[nn.Module, Preprocessing, Any]:
    """A model that nobody trained, its preprocessing, and the record of it."""
    model = build_model(settings, 3)
    preprocessing = preprocessing_for(model, settings, 3)
    folders = open_folders(images, held_out or images)
    record = write_result(
        model,
        settings,
        out,
        preprocessing=preprocessing,
        folders=folders,
        command="train",
    )
    return model, preprocessing, record


def test_the_record_says_where_the_weights_come_from(
    images: Path, tmp_path: Path
) -> None:
    out = tmp_path / "vit.safetensors"
    held_out = make_images(tmp_path / "held out", classes=3, each=2, side=8)
    model, preprocessing, record = written(images, out, held_out=held_out)
    assert record == load_json(TRAIN.TrainRecord, out.with_suffix(".json"))
    assert (record.settings, record.epochs, record.command) == (TINY, 2, "train")
    assert record.class_names == ("class_0", "class_1", "class_2")
    assert (record.images_train, record.images_held_out) == (9, 6)
    assert record.images_train_sha256 != record.images_held_out_sha256
    assert record.preprocessing == preprocessing
    assert (preprocessing.input_size, preprocessing.crop_pct) == ((3, 16, 16), 1.0)
    assert record.parameters == sum(
        parameter.numel() for parameter in model.parameters()
    )
    assert record.weights_sha256 == sha256_of(out)
    assert str(images) not in out.with_suffix(".json").read_text()
    half = {name: value.half() for name, value in model.state_dict().items()}
    torch.testing.assert_close(load_file(out), half, rtol=0, atol=0)


def test_accuracy_is_that_of_the_images(images: Path, tmp_path: Path) -> None:
    """A model that gives one class to all is right on that class's share."""
    model = build_model(TINY, 3)
    state = model.state_dict()
    state["head.weight"].zero_()
    state["head.bias"].copy_(torch.tensor([0.0, 1.0, 0.0]))
    folders = open_folders(images, images)
    preprocessing = preprocessing_for(model, TINY, 3)
    out = tmp_path / "vit.safetensors"
    record = write_result(
        model, TINY, out, preprocessing=preprocessing, folders=folders, command=""
    )
    assert record.top1_train == record.top1_held_out == pytest.approx(1 / 3)
