"""A tiny ViT on a handful of images: what a run leaves, and that an interruption changes nothing."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console
from safetensors.torch import load_file

from exporter.errors import ArtefactError, ImageError, ModelError, OutputError, RecipeError
from exporter.records import load_json
from exporter.training.__main__ import main
from exporter.training.checkpoint import RunState
from exporter.training.result import TrainRecord
from exporter.training.session import train_folder
from exporter.training.settings import TrainSettings

QUIET = Console(quiet=True)
SHAPE = {"img_size": 16, "patch_size": 4, "embed_dim": 32, "num_heads": 2, "depth": 2}
TINY = TrainSettings(
    model_kwargs=SHAPE, epochs=2, small_epochs=1, warmup_epochs=1, batch_size=4, ema_decay=0.9, crop_pct=1.0
)


class PowerCutError(Exception):
    """What stops a run between two epochs."""


def write_images(root: Path, classes: int, count: int = 3) -> Path:
    random = np.random.default_rng(0)
    for label in range(classes):
        for index in range(count):
            path = root / f"class{label}" / f"{index}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(random.integers(0, 256, (8, 8), dtype=np.uint8)).save(path)
    return root


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_images(tmp_path_factory.mktemp("images"), classes=3)


@pytest.fixture(scope="module")
def trained(images: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole") / "vit.safetensors"
    train_folder(images, images, out, TINY, QUIET)
    return out


def test_interrupted_run_ends_with_the_same_bytes(
    images: Path, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "vit.safetensors"

    def cut_after_saving(state: RunState, path: Path) -> None:
        save(state, path)
        raise PowerCutError

    save = RunState.save
    with monkeypatch.context() as patch:
        patch.setattr(RunState, "save", cut_after_saving)
        with pytest.raises(PowerCutError):
            train_folder(images, images, out, TINY, QUIET)
    assert not out.exists()
    train_folder(images, images, out, TINY, QUIET)
    assert trained.read_bytes() == out.read_bytes()
    assert trained.with_suffix(".json").read_bytes() == out.with_suffix(".json").read_bytes()


def test_record_says_where_the_weights_come_from(images: Path, trained: Path) -> None:
    record = load_json(TrainRecord, trained.with_suffix(".json"))
    assert record.settings == TINY
    assert record.epochs == 2
    assert record.class_names == ("class0", "class1", "class2")
    assert record.images_train == record.images_held_out == 9
    assert record.images_train_sha256 == record.images_held_out_sha256
    assert record.preprocessing.input_size == (3, 16, 16)
    assert record.preprocessing.crop_pct == 1.0
    assert record.parameters == sum(value.numel() for value in load_file(trained).values())
    assert {"torch", "timm"} <= set(record.versions)
    assert 0 <= record.top1_held_out <= 1
    assert str(images) not in trained.with_suffix(".json").read_text()


def test_weights_are_half_precision_under_timm_keys(trained: Path) -> None:
    state = load_file(trained)
    assert {torch.float16} == {value.dtype for value in state.values()}
    assert state["pos_embed"].shape == (1, 17, 32)


def test_checkpoint_of_other_settings_is_refused(images: Path, tmp_path: Path, trained: Path) -> None:
    out = tmp_path / "vit.safetensors"
    out.with_suffix(".ckpt").write_bytes(trained.with_suffix(".ckpt").read_bytes())
    with pytest.raises(ArtefactError, match="other settings"):
        train_folder(images, images, out, TrainSettings(model_kwargs=SHAPE, epochs=2, warmup_epochs=0), QUIET)


def test_broken_checkpoint_is_refused(images: Path, tmp_path: Path) -> None:
    out = tmp_path / "vit.safetensors"
    out.with_suffix(".ckpt").write_bytes(b"not a checkpoint")
    with pytest.raises(ArtefactError, match="cannot be read"):
        train_folder(images, images, out, TINY, QUIET)


def test_crop_recipe_trains(images: Path, tmp_path: Path) -> None:
    settings = TrainSettings(
        model_kwargs=SHAPE,
        epochs=1,
        warmup_epochs=0,
        batch_size=9,
        augment="crop",
        scale=(0.5, 1.0),
        amp=True,
    )
    record = train_folder(images, images, tmp_path / "vit.safetensors", settings, QUIET)
    assert record.settings.augment == "crop"


def test_empty_folder_is_refused(tmp_path: Path, images: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ImageError, match="no image"):
        train_folder(tmp_path / "empty", images, tmp_path / "vit.safetensors", TINY, QUIET)


def test_broken_image_is_named(tmp_path: Path) -> None:
    root = write_images(tmp_path / "images", classes=2)
    (root / "class1" / "0.png").write_bytes(b"not an image")
    with pytest.raises(ImageError, match=r"class1.0\.png"):
        train_folder(root, root, tmp_path / "vit.safetensors", TINY, QUIET)


@pytest.mark.parametrize(
    ("model", "kwargs", "message"),
    [
        ("vit_of_nobody", {}, "a name that timm or this project knows"),
        ("vit_tiny_patch16_224", {"wings": 2}, "wings"),
        ("resnet18", {}, "a Vision Transformer"),
    ],
)
def test_wrong_model_is_refused(
    model: str, kwargs: dict[str, int], message: str, images: Path, tmp_path: Path
) -> None:
    settings = TrainSettings(model=model, model_kwargs=kwargs)
    with pytest.raises(ModelError, match=message):
        train_folder(images, images, tmp_path / "vit.safetensors", settings, QUIET)


def test_other_ending_and_device_are_refused(images: Path, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"\.safetensors"):
        train_folder(images, images, tmp_path / "vit.pt", TINY, QUIET)
    with pytest.raises(RecipeError, match="a device of this machine"):
        train_folder(images, images, tmp_path / "vit.safetensors", TrainSettings(device="abacus"), QUIET)


def test_command_line_states_itself_in_the_record(images: Path, tmp_path: Path) -> None:
    out = tmp_path / "vit.safetensors"
    shape = [f"{name}={value}" for name, value in SHAPE.items()]
    flags = ["--images", str(images), "--held-out", str(images), "--out", str(out), "--epochs", "1"]
    assert main([*flags, "--warmup-epochs", "0", "--no-fp16", "--model-kwargs", *shape]) == 0
    record = json.loads(out.with_suffix(".json").read_text())
    assert record["command"].startswith("python -m exporter.training --images")
    assert record["settings"]["model_kwargs"] == SHAPE
    assert {torch.float32} == {value.dtype for value in load_file(out).values()}


def test_user_error_is_one_line_and_exit_code_2(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "vit.safetensors")
    assert main(["--images", str(tmp_path / "no"), "--held-out", str(images), "--out", out]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
