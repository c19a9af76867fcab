"""Checkpoints: every form that official files have, and one line for each that is not weights."""

import argparse
import pickle
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from exporter.errors import CheckpointError
from exporter.models.weights import class_count, load_into, read_state_dict, weights_sha256
from tests.vits import make_model


class Innocent:
    """Not a tensor: must not be unpickled."""


@pytest.mark.parametrize("wrap", ["bare", "model", "state_dict", "with namespace", "data parallel"])
def test_torch_checkpoints(tmp_path: Path, wrap: str) -> None:
    state = make_model(seed=1).state_dict()
    content: Any = {
        "bare": state,
        "model": {"model": state, "epoch": 3},
        "state_dict": {"state_dict": state, "arch": "vit"},
        "with namespace": {"model": state, "args": argparse.Namespace(lr=0.1), "optimizer": {"state": {}}},
        "data parallel": {"state_dict": {f"module.{key}": value for key, value in state.items()}},
    }[wrap]
    torch.save(content, tmp_path / "c.pth")
    model = make_model(seed=2)
    load_into(model, read_state_dict(tmp_path / "c.pth"), "c.pth")
    assert weights_sha256(model) == weights_sha256(make_model(seed=1))


@pytest.mark.parametrize("kind", ["deit", "evit", "star", "keep score"])
def test_checkpoints_of_training_scripts(tmp_path: Path, kind: str) -> None:
    """What the published scripts of DeiT, EViT and STAR save: the weights, the run's state, its arguments."""
    arguments = argparse.Namespace(lr=2e-5, output_dir=Path("runs"), device="cuda", base_keep_rate=0.7)
    ema = make_model(seed=1).state_dict()
    run = {
        "epoch": 29,
        "optimizer": {"state": {0: {"exp_avg": torch.zeros(2)}}, "param_groups": [{"lr": 1e-6}]},
        "lr_scheduler": {"t_initial": 30, "best": float("inf")},
        "scaler": {"scale": 65536.0},
        "args": arguments,
    }
    content: dict[str, Any] = {
        "deit": {**run, "model": ema, "model_ema": None},
        "evit": {**run, "model": make_model(seed=3).state_dict(), "model_ema": ema},
        "star": {**run, "model": OrderedDict((f"module.{k}", v) for k, v in ema.items())},
        "keep score": {**run, "model": ema, "max_accuracy": np.float64(79.8)},
    }[kind]
    torch.save(content, tmp_path / "checkpoint.pth")
    model = make_model(seed=2)
    load_into(model, read_state_dict(tmp_path / "checkpoint.pth"), "checkpoint.pth")
    assert weights_sha256(model) == weights_sha256(make_model(seed=1))


def test_a_method_with_weights_of_its_own_is_named(tmp_path: Path) -> None:
    """DynamicViT's predictors are part of its model: without them the weights are another network's."""
    state = {**make_model().state_dict(), "score_predictor.0.in_conv.0.weight": torch.zeros(3)}
    torch.save({"model": state}, tmp_path / "dynamic.pth")
    with pytest.raises(CheckpointError, match=r"1 keys unexpected \(score_predictor"):
        load_into(make_model(), read_state_dict(tmp_path / "dynamic.pth"), "dynamic.pth")


def test_a_position_embedding_that_cannot_be_resampled_is_one_line() -> None:
    model = make_model()
    with pytest.raises(CheckpointError, match=r"c \| got"):
        load_into(model, {**model.state_dict(), "pos_embed": torch.zeros(1, 20, 48)}, "c")


def test_half_precision_safetensors_become_float32(tmp_path: Path) -> None:
    state = {key: value.half() for key, value in make_model(seed=1).state_dict().items()}
    save_file(state, tmp_path / "c.safetensors")
    model = make_model(seed=2)
    load_into(model, read_state_dict(tmp_path / "c.safetensors"), "c")
    assert next(model.parameters()).dtype == torch.float32
    assert torch.equal(model.state_dict()["head.weight"], state["head.weight"].float())


def test_the_class_count_is_the_heads() -> None:
    assert class_count(make_model(num_classes=11).state_dict()) == 11
    assert class_count({}) is None


def test_a_pickle_that_is_not_weights_is_refused_unread(tmp_path: Path) -> None:
    for name, content in (("object.pth", Innocent()), ("list.pth", [1, 2])):
        torch.save(content, tmp_path / name)
        with pytest.raises(CheckpointError, match=name):
            read_state_dict(tmp_path / name)
    (tmp_path / "raw.pth").write_bytes(pickle.dumps({"a": Innocent()}))
    with pytest.raises(CheckpointError, match=r"raw\.pth"):
        read_state_dict(tmp_path / "raw.pth")


@pytest.mark.parametrize("name", ["missing.pth", "missing.safetensors"])
def test_a_missing_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(CheckpointError, match="missing"):
        read_state_dict(tmp_path / name)


@pytest.mark.parametrize("name", ["broken.pth", "broken.safetensors"])
def test_a_broken_file(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"not weights at all")
    with pytest.raises(CheckpointError, match="broken"):
        read_state_dict(tmp_path / name)


def test_other_keys_are_named() -> None:
    model = make_model()
    state = {key: value for key, value in model.state_dict().items() if key != "norm.bias"}
    with pytest.raises(CheckpointError, match=r"1 keys missing \(norm\.bias\); 1 keys unexpected \(extra\)"):
        load_into(model, {**state, "extra": torch.zeros(1)}, "c")


def test_other_shapes_are_named() -> None:
    model = make_model()
    with pytest.raises(CheckpointError, match=r"head\.bias of shape \[3\] \| need \[7\]"):
        load_into(model, {**model.state_dict(), "head.bias": torch.zeros(3)}, "c")


def test_the_hash_sees_one_bit() -> None:
    model = make_model()
    before = weights_sha256(model)
    with torch.no_grad():
        model.get_parameter("norm.bias")[0] += 1e-7
    assert weights_sha256(model) != before
