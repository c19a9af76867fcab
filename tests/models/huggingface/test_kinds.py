"""The kinds of the library's models, and their configs."""

from typing import Any

import pytest

from exporter.errors import ModelError
from exporter.models.huggingface.kinds import (
    KINDS,
    kind_of,
    network_of,
    vision_config,
)


def test_a_config_without_values_has_the_librarys_own() -> None:
    for name, patch, act in (
        ("CLIPVisionModel", 32, "quick_gelu"),
        ("SiglipVisionModel", 16, "gelu_tanh"),
        ("Dinov2Model", 14, "gelu"),
        ("DINOv3ViTModel", 16, "gelu"),
    ):
        architecture, kwargs = network_of({"architectures": [name]}, "x")
        assert architecture == KINDS[name].architecture
        assert (kwargs["patch_size"], kwargs["num_classes"]) == (patch, 0)
        assert kwargs.get("act_layer", "gelu") == act


@pytest.mark.parametrize(("hidden", "dim"), [(80, 48), (256, 48), (3073, 768), (4096, 1408)])
def test_the_size_of_an_mlp_survives_being_a_ratio(hidden: int, dim: int) -> None:
    config = {
        "architectures": ["CLIPVisionModel"],
        "hidden_size": dim,
        "intermediate_size": hidden,
    }
    assert int(dim * network_of(config, "x")[1]["mlp_ratio"]) == hidden


def test_a_tower_within_a_parent_is_found() -> None:
    inner = {"model_type": "clip_vision_model", "hidden_size": 48}
    pair = {"architectures": ["CLIPModel"], "projection_dim": 24, "vision_config": inner}
    found = vision_config(pair)
    assert found == {
        **inner,
        "projection_dim": 24,
        "architectures": ["CLIPVisionModelWithProjection"],
    }
    assert network_of(found, "x")[1]["num_classes"] == 24
    parent = vision_config(
        {"architectures": ["LlavaForConditionalGeneration"], "vision_config": inner}
    )
    assert kind_of(parent, "x") is KINDS["CLIPVisionModel"]
    assert vision_config({"hidden_size": 5}) == {"hidden_size": 5}
    assert vision_config({"vision_config": 7}) == {}


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (
            {"model_type": "qwen2_5_vl"},
            "it merges neighbouring patches, on grids that follow the image",
        ),
        (
            {"model_type": "swinv2", "architectures": ["Swinv2Model"]},
            "it attends in windows and merges patches",
        ),
        ({"model_type": "siglip2_vision_model"}, "its grid follows the image"),
        (
            {"model_type": "beit", "architectures": ["BeitModel"]},
            r"got BeitModel \| need one of ViTForImage",
        ),
        ({"architectures": ["Dinov2Model"], "hidden_act": "mish"}, "hidden_act 'mish'"),
        ({"model_type": "dinov3_vit", "hidden_act": "silu"}, "got 'silu' .* need gelu"),
    ],
)
def test_a_refusal_says_why(config: dict[str, Any], reason: str) -> None:
    with pytest.raises(ModelError, match=reason):
        network_of(config, "x")
