"""Names, checkpoints and keyword arguments."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from exporter.errors import CheckpointError
from exporter.models.registry import ModelRequest, describe, load, trainable
from tests.vits import TINY_SHAPE, make_model, make_vit

NAME = "vit_tiny_patch16_224"


def test_a_checkpoint_brings_its_own_class_count(tmp_path: Path) -> None:
    model = make_model()
    save_file(model.state_dict(), tmp_path / "w.safetensors")
    vit = load(ModelRequest(NAME, tmp_path / "w.safetensors", model_kwargs=TINY_SHAPE))
    assert vit.spec.num_classes == 7
    images = torch.randn(2, 3, 32, 32)
    with torch.inference_mode():
        assert torch.equal(vit.model(images), model(images))


def test_num_classes_overrides_and_a_head_of_another_size_is_refused(tmp_path: Path) -> None:
    save_file(make_model().state_dict(), tmp_path / "w.safetensors")
    with pytest.raises(CheckpointError, match=r"head\.(bias|weight)"):
        load(ModelRequest(NAME, tmp_path / "w.safetensors", num_classes=9, model_kwargs=TINY_SHAPE))


def test_describe_reads_no_weights() -> None:
    vit = describe(ModelRequest("deit_base_patch16_224"))
    assert (vit.spec.depth, vit.spec.dim, vit.spec.num_patches) == (12, 768, 196)
    assert vit.weights_sha256 == ""
    assert next(vit.model.parameters()).is_meta


def test_preprocessing_can_be_overridden() -> None:
    request = ModelRequest(
        NAME, model_kwargs=TINY_SHAPE, preprocess={"crop_pct": 1.0, "mean": (0.0, 0.0, 0.0)}
    )
    assert describe(request).spec.preprocessing.crop_pct == 1.0
    assert describe(request).spec.preprocessing.mean == (0.0, 0.0, 0.0)


def test_an_adapted_vit_is_trainable_for_a_while() -> None:
    vit = make_vit()
    assert not any(parameter.requires_grad for parameter in vit.model.parameters())
    with pytest.raises(KeyboardInterrupt), trainable(vit):
        assert all(parameter.requires_grad for parameter in vit.model.parameters())
        vit.model.train()
        raise KeyboardInterrupt
    assert not any(parameter.requires_grad for parameter in vit.model.parameters())
    assert not any(part.training for part in vit.model.modules())
