"""A tiny ViT on a handful of images: what a run leaves, and that an interruption changes nothing."""

from pathlib import Path

import pytest

from exporter.errors import ArtefactError, ImageError, ModelError, OutputError, RecipeError
from exporter.training.checkpoint import RunState
from exporter.training.settings import TrainSettings
from exporter.training.train_folder import train_folder
from tests.training.tiny import QUIET, SHAPE, TINY, write_images


class PowerCutError(Exception):
    """What stops a run between two epochs."""


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


def test_broken_image_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root = write_images(tmp_path / "images", classes=2)
    (root / "class1" / "0.png").write_bytes(b"not an image")
    train_folder(root, root, tmp_path / "vit.safetensors", TINY, QUIET)
    assert "skipped class1/0.png: cannot be decoded" in caplog.text


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
