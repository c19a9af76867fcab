"""Checkpoints of official files, under the keys and in the sizes of the networks that run them here."""

import re
from pathlib import Path

import pytest
import torch
from torch import nn

from exporter.models.conversion import to_own_keys
from exporter.models.lvvit import LvVit
from exporter.models.registry import ModelRequest, load
from exporter.models.weights import load_into, weights_sha256
from tests.vits import FAMILIES, make_model


@pytest.mark.parametrize("family", FAMILIES)
def test_a_models_own_state_stays_as_it_is(family: str) -> None:
    model = make_model(family)
    state = model.state_dict()
    converted = to_own_keys(state, model)
    assert converted is not state
    assert converted.keys() == state.keys()
    assert all(converted[key] is value for key, value in state.items())


@pytest.mark.parametrize("family", ["vit", "eva, bias apart", "lvvit"])
def test_a_grid_of_another_size_is_resampled_and_the_callers_state_left_alone(family: str) -> None:
    """Positions that are all alike, and a ramp down the rows, keep what they are on a finer grid."""
    coarse, fine = (make_model(family, img_size=side) for side in (64, 128))
    state = coarse.state_dict()
    grid = round((state["pos_embed"].shape[1] - 1) ** 0.5)
    ramp = torch.linspace(-1, 1, grid).repeat_interleave(grid)
    state["pos_embed"] = torch.ones_like(state["pos_embed"])
    state["pos_embed"][0, 1:, 0] = ramp
    before = state["pos_embed"].clone()
    found = to_own_keys(state, fine)["pos_embed"]
    assert found.shape == fine.state_dict()["pos_embed"].shape
    assert torch.equal(state["pos_embed"], before)
    torch.testing.assert_close(found[..., 1:], torch.ones_like(found[..., 1:]))
    assert found[0, 0, 0] == 1  # the class token has no place in the grid
    rows = found[0, 1:, 0].view(2 * grid, 2 * grid)
    torch.testing.assert_close(rows, rows[:, :1].expand_as(rows))
    assert (rows[1:, 0] > rows[:-1, 0] - 1e-2).all() and rows[-1, 0] > 0.9 and rows[0, 0] < -0.9


def test_a_patch_embedding_of_another_size_is_resampled() -> None:
    """Resampled filters give on enlarged images what they gave before, where images are flat."""
    small, large = make_model(patch_size=4), make_model(patch_size=8)
    found = to_own_keys(small.state_dict() | {"pos_embed": large.state_dict()["pos_embed"]}, large)
    weight, own = found["patch_embed.proj.weight"], small.state_dict()["patch_embed.proj.weight"]
    assert weight.shape[-2:] == (8, 8)
    torch.testing.assert_close(weight.sum((2, 3)), own.sum((2, 3)), rtol=1e-3, atol=1e-3)


def test_results_alone_go_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    """timm's filter of DINOv3 prints where the model has no bias that the file has."""
    model = make_model("dinov3", qkv_bias=False)
    state = {**model.state_dict(), "blocks.0.attn.qkv.bias": torch.zeros(144)}
    state["storage_tokens"] = state.pop("reg_token")
    assert to_own_keys(state, model).keys() == model.state_dict().keys()
    assert capsys.readouterr().out == ""


def test_a_network_that_nothing_is_known_of_gets_its_keys_as_they_are() -> None:
    state = {"gamma_1": torch.zeros(1)}
    assert to_own_keys(state, nn.Linear(2, 2)) == state


def test_the_layer_scales_of_official_deit3_files_are_renamed() -> None:
    state = make_model("deit3, layer scale", seed=1).state_dict()
    official = {re.sub(r"ls(\d)\.gamma", r"gamma_\1", key): value for key, value in state.items()}
    assert "blocks.0.gamma_1" in official
    model = make_model("deit3, layer scale", seed=2)
    load_into(model, official, "deit3.pth")
    assert weights_sha256(model) == weights_sha256(make_model("deit3, layer scale", seed=1))


def test_a_position_embedding_of_another_size_is_resampled(tmp_path: Path) -> None:
    torch.save(LvVit(384, 1, 6, num_classes=5, img_size=64).state_dict(), tmp_path / "w.pth")
    request = ModelRequest("lvvit_s", tmp_path / "w.pth", model_kwargs={"img_size": (32, 96), "depth": 1})
    assert load(request).spec.grid == (2, 6)
