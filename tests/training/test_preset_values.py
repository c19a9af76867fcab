"""A preset's values; a bundled model, also as a fine-tuned checkpoint, is augmented as in its own training."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from exporter.bundled import DIGITS_VIT, MODELS, OFFSET_DIGITS_VIT
from exporter.errors import RecipeError
from exporter.models.identity import Identity, to_metadata
from exporter.training.preset_values import preset_values
from exporter.training.presets import PRESETS
from exporter.training.settings import FinetuneSettings


def test_a_bundled_model_is_augmented_as_in_its_own_training() -> None:
    digits, offset = (preset_values("short", each.name) for each in (DIGITS_VIT, OFFSET_DIGITS_VIT))
    assert (digits["augment"], digits["hflip"], digits["rotate"]) == ("affine", 0.0, 12.0)
    assert tuple(offset["scale"]) == (0.85, 1.15)
    assert digits["epochs"] == PRESETS["short"]["epochs"]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("preset", PRESETS)
def test_all_values_are_those_of_settings(preset: str, name: str) -> None:
    FinetuneSettings(**preset_values(preset, name))


@pytest.mark.parametrize("name", [None, "vit_tiny_patch16_224"])
def test_a_checkpoint_says_which_model_it_is(name: str | None, tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    identity = Identity("digits_vit", "vit_tiny_patch16_224")
    save_file({"w": np.zeros(1, np.float32)}, path, metadata=to_metadata(identity))
    assert preset_values("short", name, path) == preset_values("short", "digits_vit")


def test_other_models_take_the_preset_alone(tmp_path: Path) -> None:
    assert preset_values("short") == preset_values("short", "deit_tiny_patch16_224") == PRESETS["short"]
    assert preset_values("short", "digits_vit", own_augmentation=False) == PRESETS["short"]
    (tmp_path / "w.pth").write_bytes(b"says nothing")
    assert preset_values("paper", "digits_vit", tmp_path / "w.pth")["augment"] == "affine"


def test_another_preset_is_refused() -> None:
    with pytest.raises(RecipeError, match=r"--preset \| got 'long' \| need one of paper, short"):
        preset_values("long")
