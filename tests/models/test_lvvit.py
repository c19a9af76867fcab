"""LV-ViT: the published sizes and keys, its auxiliary head, and its halved branches."""

from pathlib import Path
from typing import Any

import pytest
import torch

from exporter.errors import CheckpointError, ModelError
from exporter.models.lvvit import LvVit
from exporter.models.registry import ModelRequest, describe, load
from tests.vits import make_model


def small(name: str, **kwargs: Any) -> ModelRequest:
    """A small LV-ViT by its registered name; the sizes that the name fixes stay."""
    return ModelRequest(name, model_kwargs=kwargs)


def test_the_keys_are_those_of_the_official_files() -> None:
    layer = ("weight", "bias")
    expected = {"cls_token", "pos_embed"}
    expected |= {f"patch_embed.conv{i}.weight" for i in (1, 2, 3)}
    statistics = (*layer, "running_mean", "running_var", "num_batches_tracked")
    expected |= {f"patch_embed.bn{i}.{kind}" for i in (1, 2, 3) for kind in statistics}
    for index in range(16):
        block = f"blocks.{index}"
        expected.add(f"{block}.attn.qkv.weight")
        for part in ("norm1", "attn.proj", "norm2", "mlp.fc1", "mlp.fc2"):
            expected |= {f"{block}.{part}.{kind}" for kind in layer}
    for part in ("patch_embed.proj", "norm", "head", "aux_head"):
        expected |= {f"{part}.{kind}" for kind in layer}
    assert set(describe(small("lvvit_s")).model.state_dict()) == expected


@pytest.mark.parametrize("wrap", ["bare", "state_dict", "ema before the raw weights"])
def test_checkpoints_in_every_official_form(tmp_path: Path, wrap: str) -> None:
    model = LvVit(384, 1, 6, num_classes=5, img_size=32).eval()
    state = {f"module.{key}": value for key, value in model.state_dict().items()}
    zeros = {key: torch.zeros_like(value) for key, value in state.items()}
    content = {
        "bare": state,
        "state_dict": {"state_dict": state, "arch": "lvvit_s"},
        "ema before the raw weights": {"state_dict": zeros, "state_dict_ema": state},
    }[wrap]
    torch.save(content, tmp_path / "lvvit.pth.tar")
    request = ModelRequest("lvvit_s", tmp_path / "lvvit.pth.tar", model_kwargs={"img_size": 32, "depth": 1})
    vit = load(request)
    assert vit.spec.num_classes == 5
    images = torch.randn(2, 3, 32, 32)
    with torch.inference_mode():
        assert torch.equal(vit.model(images), model(images))


def test_what_cannot_be_loaded_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="give --checkpoint FILE"):
        load(small("lvvit_s"))
    with pytest.raises(ModelError, match="wings"):
        describe(small("lvvit_s", wings=2))
    with pytest.raises(ModelError, match="multiples of 16"):
        describe(small("lvvit_s", img_size=40))
    torch.save(make_model().state_dict(), tmp_path / "w.pth")
    with pytest.raises(CheckpointError, match="keys missing"):
        load(ModelRequest("lvvit_s", tmp_path / "w.pth"))
