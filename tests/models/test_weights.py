"""Checkpoints: every form that official files have, and one line for each that is not weights."""

import argparse
from collections import OrderedDict
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import nn
from torchvision.models import VisionTransformer as TorchvisionNetwork

from exporter.core.base.errors import CheckpointError
from exporter.core.base.records import GUESS
from exporter.core.vit.protocol import weights_sha256
from exporter.models.registry import load
from exporter.models.request import ModelRequest
from exporter.models.weights import class_count, load_into, read_state_dict
from tests.vits import TINY_SHAPE, make_model


def below(prefix: str, state: dict[str, Any]) -> dict[str, Any]:
    return {f"{prefix}{key}": value for key, value in state.items()}


STATE = make_model(seed=1).state_dict()
OTHER = make_model(seed=3).state_dict()
# What the published scripts of DeiT, EViT and STAR save beside the weights: the run's state, and its arguments.
RUN = {
    "epoch": 29,
    "optimizer": {
        "state": {0: {"exp_avg": torch.zeros(2)}},
        "param_groups": [{"lr": 1e-6}],
    },
    "lr_scheduler": {"t_initial": 30, "best": float("inf")},
    "scaler": {"scale": 65536.0},
    "args": argparse.Namespace(
        lr=2e-5, output_dir=Path("runs"), device="cuda", base_keep_rate=0.7
    ),
    "max_accuracy": np.float64(79.8),
}
# What files hold that load as the weights alone do, and what is said of what is left out.
READ: dict[str, tuple[dict[str, Any], str]] = {
    "bare": (STATE, ""),
    "state_dict": ({"state_dict": STATE, "arch": "vit"}, ""),
    "twice": ({"model": {"model": STATE}}, ""),
    "sparse": (
        {**STATE, "head.weight": STATE["head.weight"].to_sparse()},
        "",
    ),
    "DeiT": ({**RUN, "model": STATE, "model_ema": None}, ""),
    "EViT": (
        {**RUN, "model": OTHER, "model_ema": STATE},
        "model_ema are taken, not those of model",
    ),
    "STAR": ({**RUN, "model": OrderedDict(below("module.", STATE))}, ""),
    "under another name": (
        {"net": STATE, "accuracy": torch.tensor(0.5)},
        "left out: accuracy",
    ),
    "blocks wrapped": (
        {
            key.replace(".attn.", ".attn._orig_mod."): value
            for key, value in STATE.items()
        },
        "",
    ),
    "averaged": ({"n_averaged": torch.tensor(3), **below("module.", STATE)}, ""),
    "counted": (
        {**STATE, "total_ops": torch.zeros(1), "blocks.0.total_params": torch.zeros(1)},
        "",
    ),
    "lightning, with a loss": (
        {
            "state_dict": {
                **below("model.", STATE),
                "criterion.weight": torch.ones(3),
                "acc.tp": torch.ones(3),
            }
        },
        "the weights below model. are taken; left out: acc, criterion",
    ),
    "a teacher of another kind": (
        {**below("student.", STATE), "teacher.fc.weight": torch.ones(3, 3)},
        "teacher",
    ),
    "averages": (
        {"state_dict": OTHER, "state_dict_ema": STATE},
        "state_dict_ema are taken, not those of state_dict",
    ),
    "averages of another name": (
        {"model": STATE, "ema": below("module.", OTHER)},
        "not those of ema",
    ),
}


@pytest.mark.parametrize("name", READ)
def test_forms_that_are_read(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    content, said = READ[name]
    torch.save(content, tmp_path / "c.pth")
    vit = load(
        ModelRequest(
            "vit_tiny_patch16_224", tmp_path / "c.pth", model_kwargs=TINY_SHAPE
        )
    )
    assert vit.weights_sha256 == weights_sha256(make_model(seed=1))
    lines = [message for message in caplog.messages if GUESS not in message]
    assert len(lines) == bool(said)
    assert said in caplog.text


PARTS = st.sampled_from(
    [
        "module",
        "_orig_mod",
        "model",
        "net",
        "head",
        "blocks",
        "0",
        "visual",
        "norm",
        "student",
    ]
)


@given(
    prefix=st.lists(PARTS | st.from_regex(r"[a-z_]{1,8}", fullmatch=True), max_size=5)
)
def test_a_prefix_that_all_weights_share_carries_no_information(
    prefix: list[str],
) -> None:
    model = make_model(seed=2)
    load_into(model, below("".join(f"{part}." for part in prefix), STATE), "c.pth")
    assert all(
        torch.equal(value, STATE[key]) for key, value in model.state_dict().items()
    )


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float16])
def test_weights_of_fewer_bits_are_those_numbers(
    tmp_path: Path, dtype: torch.dtype
) -> None:
    state = {key: value.to(dtype) for key, value in STATE.items()}
    save_file(state, tmp_path / "c.safetensors")
    model = make_model(seed=2)
    load_into(model, read_state_dict(tmp_path / "c.safetensors"), "c")
    assert all(
        torch.equal(value, state[key].float())
        for key, value in model.state_dict().items()
    )


# What files hold that is refused, and a part of the line.
REFUSED: dict[str, tuple[Any, str]] = {
    "a module": (
        nn.Linear(2, 2),
        "a pickled torch.nn.modules.linear.Linear, which only its own code can read",
    ),
    "a date": (
        {"model": STATE, "day": date(2024, 1, 2)},
        r"a pickled datetime.date, .* torch.save\(model.state_dict\(\)",
    ),
    "two sets": (
        {"teacher": STATE, "student": OTHER},
        "below student. and below teacher. .* one of them",
    ),
    "an adapter": (
        {
            **below("base_model.model.", STATE),
            "base_model.model.blocks.0.attn.qkv.lora_A.default.weight": torch.zeros(2),
        },
        "lora_A.default.weight, of an adapter of PEFT that is not merged .* merge first",
    ),
    "a shard of FSDP": ({"_flat_param": torch.zeros(3)}, "a shard of FSDP"),
    "a shard of ZeRO": (
        {"optimizer_state_dict": {"zero_stage": 2}},
        "a shard of DeepSpeed's ZeRO",
    ),
    "an empty shard": (
        {"module": {key: torch.empty(0) for key in STATE}},
        "cls_token without values .* join the shards",
    ),
    "scales": (
        {
            **{key: value.to(torch.float8_e4m3fn) for key, value in STATE.items()},
            "head.weight_scale": torch.ones(1),
        },
        "head.weight_scale, a scale of weights of 8 bits",
    ),
    "integers": (
        {key: value.int() for key, value in STATE.items()},
        "cls_token of type int32",
    ),
    "flat positions": (
        {**STATE, "pos_embed": STATE["pos_embed"][0]},
        r"need the \d+ keys of this model",
    ),
    "a flat kernel": (
        {**STATE, "patch_embed.proj.weight": torch.zeros(48)},
        r"need the \d+ keys of this model",
    ),
    "a list": ([1, 2], "a list without weights"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_forms_that_are_refused(tmp_path: Path, name: str) -> None:
    content, said = REFUSED[name]
    torch.save(content, tmp_path / "c.pth")
    with pytest.raises(CheckpointError, match=said) as caught:
        load(
            ModelRequest(
                "vit_tiny_patch16_224", tmp_path / "c.pth", model_kwargs=TINY_SHAPE
            )
        )
    assert str(caught.value).isprintable()


def test_the_class_count_is_the_heads() -> None:
    assert class_count(make_model(num_classes=11).state_dict()) == 11
    assert class_count(below("model.", make_model(num_classes=11).state_dict())) == 11
    assert (
        class_count(
            {"a.head.weight": torch.zeros(2, 4), "b.head.weight": torch.zeros(3, 4)}
        )
        is None
    )
    assert class_count({}) is None


TORCHVISIONS: dict[str, Any] = {
    "image_size": 16,
    "patch_size": 8,
    "num_layers": 1,
    "num_heads": 2,
    "hidden_dim": 16,
    "mlp_dim": 16,
    "num_classes": 3,
}


@pytest.mark.parametrize("network", ["timm", "torchvision"])
@pytest.mark.parametrize(
    ("place", "is_told"), [("", False), (".0", False), (".1", True)]
)
def test_a_head_of_one_layer_is_the_networks_wherever_its_owner_has_it(
    caplog: pytest.LogCaptureFixture, network: str, place: str, is_told: bool
) -> None:
    model: nn.Module = make_model(num_classes=3)
    if network == "torchvision":
        model = TorchvisionNetwork(**TORCHVISIONS)
    head = "head" if network == "timm" else "heads.head"
    state = {
        key.replace(f"{head}.", f"{head.partition('.')[0]}{place}."): value + 1
        for key, value in model.state_dict().items()
    }
    for prefix in ("", "net."):
        assert class_count(below(prefix, state)) == 3
        load_into(model, below(prefix, state), "c")
        loaded = model.state_dict()[f"{head}.weight"]
        assert torch.equal(loaded, state[f"{head.partition('.')[0]}{place}.weight"])
    assert ("is taken for the whole head" in caplog.text) == is_told


def test_a_head_of_two_layers_is_refused() -> None:
    model = make_model(num_classes=3)
    state = model.state_dict()
    for part in ("weight", "bias"):
        state[f"head.2.{part}"] = state.pop(f"head.{part}")
        state[f"head.0.{part}"] = state[f"head.2.{part}"]
    with pytest.raises(CheckpointError, match=r"2 keys missing \(head.bias"):
        load_into(model, state, "c")


def test_a_head_beside_its_network_is_to_be_put_into_it() -> None:
    model = make_model(num_classes=3)
    state = {
        key if key.startswith("head.") else f"backbone.{key}": value
        for key, value in model.state_dict().items()
    }
    for prefix in ("", "module."):
        with pytest.raises(
            CheckpointError, match=r"model\.backbone\.head = model\.head"
        ):
            load_into(model, below(prefix, state), "c")


def test_other_keys_are_named() -> None:
    model = make_model()
    state = {
        key: value for key, value in model.state_dict().items() if key != "norm.bias"
    }
    with pytest.raises(
        CheckpointError,
        match=r"1 keys missing \(norm\.bias\); 1 keys unexpected \(extra\)",
    ):
        load_into(model, {**state, "extra": torch.zeros(1)}, "c")


def test_the_hash_sees_one_bit() -> None:
    model = make_model()
    before = weights_sha256(model)
    with torch.no_grad():
        model.get_parameter("norm.bias")[0] += 1e-7
    assert weights_sha256(model) != before
