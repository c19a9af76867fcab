"""The kinds of the library's models, and their configs."""

from typing import Any

import pytest
import transformers

from exporter.core.base.errors import ModelError
from exporter.models.huggingface.kinds import (
    KINDS,
    network_of,
    tower_config,
)


@pytest.mark.parametrize("name", KINDS)
def test_a_config_without_values_is_of_the_networks_size(name: str) -> None:
    config = getattr(transformers, name).config_class(architectures=[name])
    architecture, kwargs = network_of(config, "x")
    assert architecture == KINDS[name].architecture
    assert kwargs["patch_size"] == config.patch_size
    act = {"CLIPVision": "quick_gelu", "SiglipVisi": "gelu_tanh"}.get(name[:10], "gelu")
    assert kwargs.get("act_layer", "gelu") == act


@pytest.mark.parametrize(
    ("hidden", "dim"), [(80, 48), (256, 48), (3073, 768), (4096, 1408)]
)
def test_the_size_of_an_mlp_survives_being_a_ratio(hidden: int, dim: int) -> None:
    config = transformers.CLIPVisionConfig(
        hidden_size=dim, intermediate_size=hidden, num_attention_heads=16
    )
    assert int(dim * network_of(config, "x")[1]["mlp_ratio"]) == hidden


@pytest.mark.parametrize(
    ("config", "values", "reason"),
    [
        (
            "Qwen2_5_VLConfig",
            {},
            "it merges neighbouring patches, on grids that follow",
        ),
        ("Swinv2Config", {}, "it attends in windows and merges patches"),
        ("Siglip2VisionConfig", {}, "its grid follows the image"),
        (
            "BeitConfig",
            {"architectures": ["BeitModel"]},
            r"got BeitModel \| need one of ViTFor",
        ),
        ("Dinov2Config", {"hidden_act": "mish"}, "hidden_act 'mish'"),
        ("DINOv3ViTConfig", {"hidden_act": "silu"}, "got 'silu' .* need gelu"),
    ],
)
def test_a_refusal_says_why(config: str, values: dict[str, Any], reason: str) -> None:
    with pytest.raises(ModelError, match=reason):
        network_of(tower_config(getattr(transformers, config)(**values)), "x")
