"""Checkpoints of official files, under the keys and in the sizes of the networks that run them here."""

import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import nn
from torchvision.models import VisionTransformer as TorchvisionNetwork

from exporter.core.base.errors import CheckpointError
from exporter.core.vit.protocol import weights_sha256
from exporter.models.conversion import check_size, own_part, to_own_keys
from exporter.models.registry import load
from exporter.models.request import ModelRequest
from exporter.models.weights import load_into
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
def test_a_grid_of_another_size_is_resampled_and_the_callers_state_left_alone(
    family: str,
) -> None:
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
    assert (
        (rows[1:, 0] > rows[:-1, 0] - 1e-2).all()
        and rows[-1, 0] > 0.9
        and rows[0, 0] < -0.9
    )


def test_a_patch_embedding_of_another_size_is_resampled() -> None:
    """Resampled filters give on enlarged images what they gave before, where images are flat."""
    small, large = make_model(patch_size=4), make_model(patch_size=8)
    found = to_own_keys(
        small.state_dict() | {"pos_embed": large.state_dict()["pos_embed"]}, large
    )
    weight = found["patch_embed.proj.weight"]
    own = small.state_dict()["patch_embed.proj.weight"]
    assert weight.shape[-2:] == (8, 8)
    torch.testing.assert_close(
        weight.sum((2, 3)), own.sum((2, 3)), rtol=1e-3, atol=1e-3
    )


def test_results_alone_go_to_standard_output(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """timm's filter of DINOv3 prints where the model has no bias that the file has."""
    model = make_model("dinov3", qkv_bias=False)
    state = {**model.state_dict(), "blocks.0.attn.qkv.bias": torch.zeros(144)}
    state["storage_tokens"] = state.pop("reg_token")
    assert to_own_keys(state, model).keys() == model.state_dict().keys()
    assert capsys.readouterr().out == ""


def test_a_network_that_nothing_is_known_of_gets_its_keys_as_they_are() -> None:
    state = {"gamma_1": torch.zeros(1)}
    assert to_own_keys(state, nn.Linear(2, 2)) == state


@pytest.mark.parametrize("prefix", ["", "module.", "model._orig_mod."])
def test_the_layer_scales_of_official_deit3_files_are_renamed(prefix: str) -> None:
    state = make_model("deit3, layer scale", seed=1).state_dict()
    official = {
        prefix + re.sub(r"ls(\d)\.gamma", r"gamma_\1", key): value
        for key, value in state.items()
    }
    assert f"{prefix}blocks.0.gamma_1" in official
    model = make_model("deit3, layer scale", seed=2)
    load_into(model, official, "deit3.pth")
    assert weights_sha256(model) == weights_sha256(
        make_model("deit3, layer scale", seed=1)
    )


WITH_POSITIONS = [
    "vit",
    "distilled",
    "registers",
    "dinov2, gated mlp",
    "eva, bias apart",
    "lvvit",
]
SIDES = st.integers(1, 6)


@given(family=st.sampled_from(WITH_POSITIONS), rows=SIDES, columns=SIDES)
def test_another_grid_is_refused_unless_its_size_was_asked_for(
    family: str, rows: int, columns: int
) -> None:
    """No grid of another number of patches is resampled in silence; as many are the network's, as always."""
    model = make_model(family)
    stride = 16 if family == "lvvit" else 8
    sizes: dict[str, Any] = {"img_size": (rows * stride, columns * stride)}
    state = make_model(family, seed=1, depth=1, **sizes).state_dict()
    own = state["pos_embed"].shape[1]
    assume(own != model.state_dict()["pos_embed"].shape[1])
    for asked in ((), ("depth",), ("patch_size",)):
        with pytest.raises(CheckpointError) as caught:
            check_size(state, model, asked, "c")
        is_square = math.isqrt(rows * columns) ** 2 == rows * columns
        side = math.isqrt(rows * columns)
        told = (
            f"{side}×{side} patches of {stride}×{stride} pixels"
            if is_square
            else f"{own} positions"
        )
        assert told in str(
            caught.value
        ) and f"4×4 patches of {stride}×{stride} pixels" in str(caught.value)
        assert "--model-kwargs" in str(caught.value) and "img_size" in str(caught.value)
    if rows == columns:
        check_size(state, model, ("img_size",), "c")
        assert (
            to_own_keys(state, model)["pos_embed"].shape
            == model.state_dict()["pos_embed"].shape
        )
    check_size(state, make_model(family, **sizes), (), "c")


def test_the_flags_of_the_size_that_was_trained_load_it(tmp_path: Path) -> None:
    """What the line proposes is followed: the weights are then as they were."""
    small = {"embed_dim": 48, "num_heads": 3, "depth": 1, "num_classes": 7}
    own = make_model(depth=1, seed=1, patch_size=8, img_size=48)
    torch.save(own.state_dict(), tmp_path / "c.pth")
    request = ModelRequest(
        "vit_tiny_patch16_224", tmp_path / "c.pth", model_kwargs=small
    )
    with pytest.raises(
        CheckpointError, match="need 14×14 patches of 16×16 pixels"
    ) as caught:
        load(request)
    flags = re.findall(r"(\w+)=(\d+)", str(caught.value).partition(", or ")[0])
    assert dict(flags) == {"img_size": "48", "patch_size": "8"}
    again = ModelRequest(
        "vit_tiny_patch16_224",
        tmp_path / "c.pth",
        model_kwargs={**small, **{name: int(value) for name, value in flags}},
    )
    assert load(again).weights_sha256 == weights_sha256(own)


def test_other_patches_are_refused_unless_their_size_was_asked_for() -> None:
    state = make_model(patch_size=4).state_dict()
    for asked in ((), ("img_size",)):
        with pytest.raises(
            CheckpointError,
            match=r"8×8 patches of 4×4 .* need 4×4 patches of 8×8 .* patch_size=4",
        ):
            check_size(state, make_model(), asked, "c")
    # As many pixels, in other patches: the grid follows from what was asked for.
    check_size(state, make_model(), ("patch_size",), "c")
    model = make_model("dinov3")
    state = {**model.state_dict(), "patch_embed.proj.weight": torch.zeros(48, 3, 4, 4)}
    with pytest.raises(CheckpointError, match="got patches of 4×4 pixels"):
        check_size(state, model, (), "c")


def test_as_many_positions_are_on_the_networks_grid(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """16 positions are 2×8 or 4×4: those of a network that was trained so are not resampled, and it is said."""
    model: Any = make_model(img_size=(16, 64))
    state = make_model(img_size=(16, 64), seed=1).state_dict()
    # of whose grid timm's filter would take them to be
    model.pretrained_cfg = {"input_size": (3, 32, 32)}
    assert to_own_keys(state, model)["pos_embed"] is state["pos_embed"]
    check_size(state, model, (), "c")
    assert not caplog.messages
    check_size(state, model, ("img_size",), "c")
    assert caplog.messages == ["c: its 16 positions are read as a grid of 2×8"]


def test_the_position_of_a_token_is_no_patch() -> None:
    """Positions with and without one for the class token are of the same grid."""
    model = make_model("dinov2, gated mlp")
    state: dict[str, Any] = {
        "register_tokens": torch.zeros(1, 4, 48),
        "pos_embed": torch.zeros(1, 17, 48),
    }
    check_size(state, model, (), "c")
    with pytest.raises(CheckpointError, match=r"5×5 patches"):
        check_size({**state, "pos_embed": torch.zeros(1, 26, 48)}, model, (), "c")
    with pytest.raises(CheckpointError, match=r"16 positions, on an unknown grid"):
        check_size({"pos_embed": torch.zeros(1, 16, 48)}, make_model(), (), "c")


def test_weights_of_another_width_are_another_networks() -> None:
    """Of a checkpoint of the wrong model, the size is not what is wrong."""
    model, state = make_model(), make_model(img_size=64, embed_dim=24).state_dict()
    check_size(state, model, (), "c")
    with pytest.raises(
        CheckpointError, match=r"of shape \[1, 1, 24\] \| need \[1, 1, 48\]"
    ):
        load_into(model, state, "c")


def test_torchvisions_positions_are_never_resampled() -> None:
    shape: dict[str, Any] = {
        "patch_size": 8,
        "num_layers": 1,
        "num_heads": 2,
        "hidden_dim": 16,
        "mlp_dim": 16,
    }
    model = TorchvisionNetwork(image_size=32, **shape)
    state = TorchvisionNetwork(image_size=48, **shape).state_dict()
    for asked in ((), ("image_size",)):
        with pytest.raises(
            CheckpointError, match=r"6×6 patches .*give --model-kwargs image_size=48$"
        ):
            check_size(state, model, asked, "c")
    check_size(model.state_dict(), model, (), "c")


def clip_state(model: nn.Module) -> dict[str, torch.Tensor]:
    """The weights under the keys of open_clip's image encoder."""
    swaps = {
        "patch_embed.proj": "conv1",
        "norm_pre": "ln_pre",
        "norm1": "ln_1",
        "norm2": "ln_2",
        "attn.qkv.": "attn.in_proj_",
        "attn.proj": "attn.out_proj",
        "mlp.fc1": "mlp.c_fc",
        "mlp.fc2": "mlp.c_proj",
        "blocks": "transformer.resblocks",
    }
    state = dict(model.state_dict())
    found = {
        "proj": state.pop("head.weight").T,
        "class_embedding": state.pop("cls_token")[0, 0],
        "positional_embedding": state.pop("pos_embed")[0],
    }
    del state["head.bias"]
    for key, value in state.items():
        name = re.sub("^norm\\.", "ln_post.", key)
        for ours, theirs in swaps.items():
            name = name.replace(ours, theirs)
        found[name] = value
    return found


@pytest.mark.parametrize("prefix", ["visual.", "", "model.visual.", "module.visual."])
def test_open_clips_image_encoder_loads_alone_and_in_its_model(prefix: str) -> None:
    trained = make_model("clip", seed=1)
    nn.init.zeros_(trained.get_parameter("head.bias"))
    state = {f"{prefix}{key}": value for key, value in clip_state(trained).items()}
    if prefix.endswith("visual."):
        state[f"{prefix.removesuffix('visual.')}logit_scale"] = torch.tensor(1.0)
    model = make_model("clip", seed=2)
    load_into(model, state, "c")
    assert weights_sha256(model) == weights_sha256(trained)


def test_a_tower_of_timms_in_open_clip_brings_its_projection() -> None:
    trained = make_model(seed=1)
    nn.init.zeros_(trained.get_parameter("head.bias"))
    state = {
        f"trunk.{key}": value
        for key, value in trained.state_dict().items()
        if "head" not in key
    }
    state["head.proj.weight"] = trained.get_parameter("head.weight")
    model = make_model(seed=2)
    load_into(model, state, "c")
    assert weights_sha256(model) == weights_sha256(trained)


def test_a_file_of_other_weights_keeps_its_keys() -> None:
    state = {"encoder.a.weight": torch.zeros(1), "decoder.a.weight": torch.zeros(1)}
    assert own_part(state, {"cls_token", "norm.weight"}, "c") == state
