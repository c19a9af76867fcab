"""A config says which tower is meant, and its values are of the types that the library writes."""

from typing import Any

import pytest

from exporter.errors import ModelError
from exporter.models.huggingface.config import check_types, class_named, vision_config


@pytest.mark.parametrize(
    ("config", "name"), [({"architectures": ["A", "B"]}, "A"), ({"architectures": 7}, ""), ({}, "")]
)
def test_the_class_that_a_config_names(config: dict[str, Any], name: str) -> None:
    assert class_named(config) == name


def test_the_tower_of_a_pair_is_named_and_projects_to_the_pairs_size() -> None:
    pair = {"architectures": ["CLIPModel"], "projection_dim": 64, "vision_config": {"hidden_size": 48}}
    assert vision_config(pair) == {
        "hidden_size": 48,
        "projection_dim": 64,
        "architectures": ["CLIPVisionModelWithProjection"],
    }
    assert vision_config({"hidden_size": 48}) == {"hidden_size": 48}
    assert vision_config({"vision_config": 7}) == {}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_size", "wide"),
        ("num_hidden_layers", 0),
        ("patch_size", True),
        ("layer_norm_eps", "tiny"),
        ("mlp_ratio", float("inf")),
        *((key, 10**400) for key in ("hidden_size", "image_size", "layer_norm_eps")),
        *(("image_size", value) for value in (True, [], [32], [32, 0], "large")),
        ("hidden_act", 5),
        ("id2label", []),
    ],
)
def test_values_of_other_types_are_refused(key: str, value: object) -> None:
    check_types({"hidden_size": 48, "layer_norm_eps": 1e-6, "hidden_act": "gelu", "id2label": {}}, "mine")
    with pytest.raises(ModelError, match="mine") as caught:
        check_types({key: value}, "mine")
    assert len(str(caught.value)) < 200
