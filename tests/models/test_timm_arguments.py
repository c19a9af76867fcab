"""Arguments are plain values until timm gets them; those that timm would accept and fail on later are refused."""

from typing import Any

import pytest
from timm.layers import SwiGLUPacked
from torch import nn

from exporter.core.base.errors import ModelError
from exporter.models.registry import describe
from exporter.models.request import ModelRequest
from exporter.models.timm_arguments import SWIGLU, arguments, running_with


def test_plain_values_become_what_timm_takes() -> None:
    made = arguments({"depth": 2, "norm_eps": 1e-3, "mlp_layer": SWIGLU}, "vit")
    norm = made["norm_layer"](8)
    assert isinstance(norm, nn.LayerNorm) and norm.eps == 1e-3
    assert made == {
        "depth": 2,
        "norm_layer": made["norm_layer"],
        "mlp_layer": SwiGLUPacked,
    }


def test_others_stay_as_they_are() -> None:
    assert arguments({"img_size": 32, "norm_layer": "layernorm"}, "vit") == {
        "img_size": 32,
        "norm_layer": "layernorm",
    }


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ("vit_tiny_patch16_224", {"class_token": "flase"}),
        ("deit_tiny_distilled_patch16_224", {"pre_norm": "false"}),
        ("lvvit_s", {"use_aux": "false"}),
    ],
)
def test_a_text_is_no_switch(model: str, told: dict[str, Any]) -> None:
    ((name, text),) = told.items()
    with pytest.raises(
        ModelError, match=f"{name}={text!r}, a text .* need true or false"
    ):
        describe(ModelRequest(model, model_kwargs=told))


@pytest.mark.parametrize("absent", ["none", None])
def test_words_of_timm_are_its_words(absent: str | None) -> None:
    told = {"global_pool": "avg", "pos_embed": absent, "class_token": False, "depth": 1}
    assert (
        describe(
            ModelRequest("vit_tiny_patch16_224", model_kwargs=told)
        ).spec.num_prefix_tokens
        == 0
    )


def test_what_a_network_raises_is_an_error_of_the_given_arguments() -> None:
    with (
        pytest.raises(ModelError, match=r"vit \| got depth, rope: unhashable"),
        running_with({"depth": 1, "rope": []}, "vit"),
    ):
        raise TypeError("unhashable type: 'list'")
    with pytest.raises(TypeError), running_with({}, "vit"):
        raise TypeError("a bug")
