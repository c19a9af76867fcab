"""Tests of what is said where weights do not tell their activation."""

import pytest
import timm

from exporter.models.activation import log_activation
from tests.vits import TINY_SHAPE

OPEN_CLIP = ("visual.class_embedding", "visual.conv1.weight")
TIMMS = ("cls_token", "patch_embed.proj.weight")
PLAIN = "vit_base_patch32_clip_224"
QUICK = "vit_base_patch32_clip_quickgelu_224"


@pytest.mark.parametrize(
    ("name", "arguments", "keys", "is_said"),
    [
        (PLAIN, (), OPEN_CLIP, True),
        (f"timm/{PLAIN}.openai", (), OPEN_CLIP, True),
        (PLAIN, ("act_layer",), OPEN_CLIP, False),
        (QUICK, (), OPEN_CLIP, False),
        (PLAIN, (), TIMMS, False),
        ("vit_base_patch16_224", (), OPEN_CLIP, False),
        (f"{PLAIN}.openai", (), (), True),
        (f"{PLAIN}.laion2b", (), (), False),
        (QUICK, (), (), False),
    ],
)
def test_both_networks_are_named_where_neither_is_told(
    name: str,
    arguments: tuple[str, ...],
    keys: tuple[str, ...],
    is_said: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    network = timm.create_model(name.removeprefix("timm/"), **TINY_SHAPE)
    log_activation(name, network, arguments, keys)
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == is_said
    for message in messages:
        assert (
            f"{PLAIN} computes GELU, which is taken; {QUICK} computes QuickGELU"
            in message
        )
        assert "act_layer=gelu" in message


def test_the_argument_that_a_line_offers_makes_the_activation() -> None:
    network = timm.create_model(
        "vit_base_patch16_clip_384", **TINY_SHAPE, act_layer="quick_gelu"
    )
    assert {type(block.mlp.act).__name__ for block in network.blocks} == {"QuickGELU"}
