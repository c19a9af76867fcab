"""Any model that a name builds can be trained: timm's, LV-ViT, the bundled one, prunable or not."""

from typing import Any

import pytest
import torch

from exporter.errors import ModelError
from exporter.training.model import build_model, build_student, preprocessing_for
from exporter.training.settings import TrainSettings

SHAPE: dict[str, Any] = {"img_size": 16, "patch_size": 4, "embed_dim": 32, "num_heads": 2, "depth": 2}
MODELS: list[tuple[str, dict[str, Any], int]] = [
    ("vit_tiny_patch16_224", SHAPE, 16),
    ("vit_tiny_patch16_224", {**SHAPE, "global_pool": "avg"}, 16),
    ("digits_vit", {"depth": 2}, 56),
    ("lvvit_s", {"img_size": 32, "dim": 32, "num_heads": 2, "depth": 2}, 32),
]


@pytest.mark.parametrize(("name", "kwargs", "side"), MODELS)
def test_a_model_of_any_name_gives_logits_of_the_classes(
    name: str, kwargs: dict[str, Any], side: int
) -> None:
    settings = TrainSettings(model=name, model_kwargs=kwargs, mean=(0.1, 0.2, 0.3), crop_pct=0.7)
    model = build_student(settings, 5)
    preprocessing = preprocessing_for(model, settings, 5)
    assert preprocessing.input_size == (3, side, side)
    assert (preprocessing.mean, preprocessing.crop_pct) == ((0.1, 0.2, 0.3), 0.7)
    assert model(torch.zeros(2, 3, side, side)).shape == (2, 5)
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_the_seed_gives_the_weights() -> None:
    first, again, other = (
        build_model(TrainSettings(model_kwargs=SHAPE, seed=seed), 3).state_dict() for seed in (1, 1, 2)
    )
    assert all(torch.equal(value, again[name]) for name, value in first.items())
    assert not torch.equal(first["head.weight"], other["head.weight"])


def test_small_epochs_need_a_model_of_any_size() -> None:
    settings = TrainSettings(model_kwargs=SHAPE, small_epochs=1)
    assert build_student(settings, 3)(torch.zeros(1, 3, 8, 8)).shape == (1, 3)
    lvvit = TrainSettings(model="lvvit_s", small_epochs=1)
    with pytest.raises(ModelError, match="dynamic_img_size"):
        build_student(lvvit, 3)


def test_a_model_without_patches_is_refused() -> None:
    settings = TrainSettings(model="resnet18")
    with pytest.raises(ModelError, match="a Vision Transformer"):
        preprocessing_for(build_model(settings, 3), settings, 3)
