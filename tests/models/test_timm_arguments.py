"""Arguments are plain values until timm gets them; those that timm would accept and fail on later are refused."""

from typing import Any

import pytest
from timm.layers import SwiGLUPacked
from torch import nn

from exporter.errors import ModelError
from exporter.models.timm_arguments import SWIGLU, arguments, running_with


def test_plain_values_become_what_timm_takes() -> None:
    made = arguments({"depth": 2, "norm_eps": 1e-3, "mlp_layer": SWIGLU}, "vit")
    norm = made["norm_layer"](8)
    assert isinstance(norm, nn.LayerNorm) and norm.eps == 1e-3
    assert made == {"depth": 2, "norm_layer": made["norm_layer"], "mlp_layer": SwiGLUPacked}


def test_others_stay_as_they_are() -> None:
    assert arguments({"img_size": 32, "norm_layer": "layernorm"}, "vit") == {
        "img_size": 32,
        "norm_layer": "layernorm",
    }


@pytest.mark.parametrize(
    ("plain", "says"),
    [
        ({"checkpoint_path": "/x"}, "checkpoint_path .* or --checkpoint FILE"),
        ({"pretrained": True}, "pretrained"),
        ({"depth": 200_000}, "depth=200000 | need at most 1000"),
        ({"num_heads": -3}, "num_heads=-3"),
        ({"num_classes": -1}, "num_classes=-1"),
        ({"in_chans": 1}, "in_chans=1 | need 3"),
        ({"norm_eps": [1]}, "norm_eps .* need a number above 0 and below 1"),
    ],
)
def test_what_would_fail_later_is_refused(plain: dict[str, Any], says: str) -> None:
    with pytest.raises(ModelError, match=says):
        arguments(plain, "vit")


def test_what_a_network_raises_is_an_error_of_the_given_arguments() -> None:
    with (
        pytest.raises(ModelError, match=r"vit \| got depth, rope: unhashable"),
        running_with({"depth": 1, "rope": []}, "vit"),
    ):
        raise TypeError("unhashable type: 'list'")
    with pytest.raises(TypeError), running_with({}, "vit"):
        raise TypeError("a bug")
