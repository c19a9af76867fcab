"""Hugging Face's ViT and DeiT: the same logits from the folder that its library saved."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from exporter.errors import CheckpointError, ModelError
from exporter.models.registry import ModelRequest, describe, load

transformers = pytest.importorskip("transformers")

SHAPE: dict[str, Any] = {
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 80,
    "image_size": 32,
    "patch_size": 8,
    "num_labels": 7,
}
KINDS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "vit": ("ViTConfig", "ViTForImageClassification", {}),
    "no bias, tanh": (
        "ViTConfig",
        "ViTForImageClassification",
        {"qkv_bias": False, "hidden_act": "gelu_new"},
    ),
    "oblong": ("ViTConfig", "ViTForImageClassification", {"image_size": [16, 48]}),
    "deit": ("DeiTConfig", "DeiTForImageClassification", {}),
    "distilled": ("DeiTConfig", "DeiTForImageClassificationWithTeacher", {}),
}


def saved(folder: Path, kind: str = "vit") -> Any:
    """A model of random weights, in eval mode; its folder is left as the library leaves it."""
    config, name, own = KINDS[kind]
    torch.manual_seed(0)
    model = getattr(transformers, name)(getattr(transformers, config)(**{**SHAPE, **own}))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.15)
    model.save_pretrained(folder)
    return model.eval()


@pytest.mark.parametrize("kind", KINDS)
def test_the_logits_are_the_librarys(tmp_path: Path, kind: str) -> None:
    model = saved(tmp_path / "mine", kind)
    vit = load(ModelRequest(str(tmp_path / "mine")))
    images = torch.randn(2, *vit.spec.preprocessing.input_size)
    with torch.inference_mode():
        torch.testing.assert_close(vit.model(images), model(images).logits, rtol=1e-4, atol=1e-4)
    assert (vit.spec.name, vit.spec.num_classes) == ("mine", 7)
    assert vit.spec.num_prefix_tokens == (1 if KINDS[kind][0] == "ViTConfig" else 2)


def test_describe_needs_the_config_alone(tmp_path: Path) -> None:
    saved(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    assert describe(ModelRequest(str(tmp_path))).spec.grid == (4, 4)
    with pytest.raises(CheckpointError, match="no weights"):
        load(ModelRequest(str(tmp_path)))


def test_a_pooler_that_nothing_reads_is_left_out(tmp_path: Path) -> None:
    saved(tmp_path)
    state = load_file(tmp_path / "model.safetensors")
    save_file({**state, "vit.pooler.dense.weight": torch.zeros(48, 48)}, tmp_path / "model.safetensors")
    assert load(ModelRequest(str(tmp_path))).spec.num_classes == 7


@pytest.mark.parametrize(
    ("processor", "expected"),
    [
        ({}, ("bilinear", "squash", 1.0)),
        ({"resample": 3, "size": 32}, ("bicubic", "squash", 1.0)),
        (
            {"resample": 3, "size": {"height": 64, "width": 64}, "do_center_crop": True, "crop_size": 32},
            ("bicubic", "squash", 0.5),
        ),
        (
            {"size": {"shortest_edge": 40}, "do_center_crop": True, "crop_size": {"height": 32, "width": 32}},
            ("bilinear", "center", 0.8),
        ),
    ],
)
def test_preprocessing_is_the_processors(
    tmp_path: Path, processor: dict[str, Any], expected: tuple[str, str, float]
) -> None:
    saved(tmp_path)
    content = {**processor, "image_mean": [0.1, 0.2, 0.3]}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(content))
    preprocessing = describe(ModelRequest(str(tmp_path))).spec.preprocessing
    assert (preprocessing.interpolation, preprocessing.crop_mode, preprocessing.crop_pct) == expected
    assert preprocessing.mean == (0.1, 0.2, 0.3)
    assert (
        describe(ModelRequest(str(tmp_path), preprocessing={"crop_pct": 0.9})).spec.preprocessing.crop_pct
        == 0.9
    )


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"architectures": ["SwinForImageClassification"]}, "SwinForImageClassification"),
        ({"architectures": None}, "no architecture"),
        ({"hidden_act": "mish"}, "hidden_act 'mish'"),
    ],
)
def test_a_refusal_says_why(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    saved(tmp_path)
    place = tmp_path / "config.json"
    place.write_text(json.dumps({**json.loads(place.read_text()), **change}))
    with pytest.raises(ModelError, match=reason):
        describe(ModelRequest(str(tmp_path)))


@pytest.mark.parametrize("content", ["not json", "[1]"])
def test_a_broken_config_is_one_line(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(ModelError, match=r"config\.json"):
        describe(ModelRequest(str(tmp_path)))
