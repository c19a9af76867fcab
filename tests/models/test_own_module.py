"""Modules of the caller's that are not as libraries make them: taken, or refused in one line."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import prune

import exporter
from exporter.errors import ModelError
from exporter.models.own_module import in_one_line
from tests.vits import make_model


class Lora(nn.Module):
    """A linear layer with a branch beside it, without the layer's attributes."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.layer, self.branch = layer, nn.Linear(layer.in_features, layer.out_features)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.layer(tokens) + self.branch(tokens)


class Nameless(nn.Module):
    """A layer that raises whatever it is asked."""

    def __init__(self, error: type[Exception]) -> None:
        super().__init__()
        self.error = error

    def forward(self, _: Tensor) -> Tensor:
        raise self.error("no")


LAYERS = ("attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2")


@pytest.mark.parametrize("layer", LAYERS)
def test_a_wrapper_without_the_attributes_of_its_layer(layer: str) -> None:
    model = make_model()
    place = f"blocks.1.{layer}"
    model.set_submodule(place, Lora(model.get_submodule(place)).eval())  # type: ignore[arg-type]
    with pytest.raises(ModelError) as error:
        exporter.load_model(model)
    assert "\n" not in str(error.value)
    with (
        pytest.raises(ModelError, match=rf"{place}, a Lora without weight"),
        in_one_line(model, "vit"),
    ):
        _ = model.get_submodule(place).weight


@pytest.mark.parametrize("layer", LAYERS)
def test_a_mask_is_refused_by_its_place_and_taken_once_it_is_removed(layer: str) -> None:
    model = make_model()
    masked: Any = model.get_submodule(f"blocks.0.{layer}")
    prune.l1_unstructured(masked, "weight", 0.5)
    with pytest.raises(ModelError, match=rf"blocks\.0\.{layer}\.weight.*prune\.remove"):
        exporter.load_model(model)
    prune.remove(masked, "weight")
    assert exporter.load_model(model).faithful


@pytest.mark.parametrize("error", [KeyError, RuntimeError, TypeError, ZeroDivisionError])
def test_whatever_a_module_raises_is_one_line(error: type[Exception]) -> None:
    model: Any = make_model()
    model.blocks[0].mlp.act = Nameless(error)
    with pytest.raises(ModelError) as refused:
        exporter.load_model(model)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("places", [(2, 1), (1, 0), (3, 0)])
def test_a_block_may_be_there_twice(places: tuple[int, int]) -> None:
    model: Any = make_model()
    later, earlier = places
    model.blocks[later] = model.blocks[earlier]
    vit = exporter.load_model(model)
    images = torch.randn(2, *vit.spec.preprocessing.input_size)
    with torch.no_grad():
        logits = exporter.dense(vit)(images)
        torch.testing.assert_close(logits, model(images), atol=1e-4, rtol=1e-4)
