"""The settings of training, and the values that a fine-tuning starts from."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
from torch import nn

from exporter.bundled import DIGITS_VIT, MODELS, OFFSET_DIGITS_VIT
from exporter.core.base.errors import RecipeError
from exporter.models.identity import Identity, save_weights
from exporter.training.settings import (
    AUGMENTATIONS,
    PRESETS,
    FinetuneSettings,
    preset_values,
)

DOCS = Path(__file__).parents[2] / "docs/finetuning.md"


def test_an_augmentation_is_a_row_with_the_values_given_in_its_place() -> None:
    assert FinetuneSettings(augment="affine").augmentation == AUGMENTATIONS["affine"]
    changed = FinetuneSettings(augment="crop", hflip=0.0, scale=(0.2, 0.9)).augmentation
    assert changed == replace(AUGMENTATIONS["crop"], hflip=0.0, scale=(0.2, 0.9))


def test_the_defaults_of_fine_tuning_are_the_papers() -> None:
    settings = FinetuneSettings()
    assert settings.lr == 2e-5
    assert settings.min_lr == 2e-9
    assert settings.warmup_epochs == 0
    assert settings.epochs == 120
    assert settings.distillation == 0.25
    assert settings.weight_decay == 0.05
    assert settings.smoothing == 0.1
    mixed = settings.augmentation
    assert (mixed.mixup, mixed.cutmix, mixed.erase) == (0.8, 1.0, 0.25)


def row_of(preset: str) -> tuple[str, ...]:
    """What docs/finetuning.md says of a preset."""
    settings = FinetuneSettings(**PRESETS[preset])
    # The rate of an epoch, and not what it tends to: the last one is a step before the end of the cosine.
    left = 1 + math.cos(math.pi * (settings.epochs - 1) / settings.epochs)
    last = settings.min_lr + (settings.lr - settings.min_lr) * left / 2
    rates = [
        f"{settings.lr:.0e}".replace("e-0", "e-"),
        f"{last:.1e}".replace("e-0", "e-"),
    ]
    return (
        f"{settings.epochs}",
        f"{settings.batch_size}",
        " to ".join(rates),
        f"{settings.clip_grad:g}" if settings.clip_grad else "none",
        f"{settings.distillation:g}",
        f"{settings.ema_decay:g}" if settings.ema_decay else "none",
        f"`{settings.augment}`",
    )


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_has_the_values_that_the_documentation_names(preset: str) -> None:
    (line,) = (
        line
        for line in DOCS.read_text(encoding="utf-8").splitlines()
        if line.startswith(f"| `{preset}`")
    )
    assert tuple(cell.strip() for cell in line.strip("|").split("|")[1:]) == row_of(
        preset
    )


def test_a_bundled_model_is_augmented_as_in_its_own_training() -> None:
    digits, offset = (
        preset_values("short", each.name) for each in (DIGITS_VIT, OFFSET_DIGITS_VIT)
    )
    assert digits["augment"] == "affine"
    assert digits["hflip"] == 0.0
    assert digits["rotate"] == 12.0
    assert tuple(offset["scale"]) == (0.85, 1.15)
    assert digits["epochs"] == PRESETS["short"]["epochs"]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("preset", PRESETS)
def test_all_values_are_those_of_settings(preset: str, name: str) -> None:
    FinetuneSettings(**preset_values(preset, name))


@pytest.mark.parametrize("name", [None, "vit_tiny_patch16_224"])
def test_a_checkpoint_says_which_model_it_is(name: str | None, tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    save_weights(nn.Linear(1, 1), Identity("digits_vit", "vit_tiny_patch16_224"), path)
    assert preset_values("short", name, path) == preset_values("short", "digits_vit")


def test_other_models_take_the_preset_alone(tmp_path: Path) -> None:
    assert (
        preset_values("short")
        == preset_values("short", "deit_tiny_patch16_224")
        == PRESETS["short"]
    )
    assert (
        preset_values("short", "digits_vit", own_augmentation=False) == PRESETS["short"]
    )
    (tmp_path / "w.pth").write_bytes(b"says nothing")
    assert (
        preset_values("paper", "digits_vit", tmp_path / "w.pth")["augment"] == "affine"
    )


def test_a_preset_that_there_is_not_is_one_line() -> None:
    with pytest.raises(RecipeError, match=r"--preset \| got 'long' .* paper, short"):
        preset_values("long")
