"""Models of Hugging Face's library that are in memory already."""

import pytest
import torch
from torch import nn

from exporter.errors import ModelError
from exporter.models.huggingface.instances import converted, is_instance
from exporter.models.registry import adapt

pytest.importorskip("transformers")
from tests.models.huggingface.saved import answer, make

IMAGES = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("kind", ["vit", "distilled", "clip, projected", "dinov2, gated", "dinov3, gated"])
def test_an_instance_is_adapted_with_its_usual_preprocessing(kind: str) -> None:
    model = make(kind)
    assert is_instance(model)
    vit = adapt(model, "mine", {"crop_pct": 0.5})
    torch.testing.assert_close(vit.model(IMAGES), answer(model, IMAGES), rtol=1e-4, atol=1e-4)
    assert (vit.spec.name, vit.spec.preprocessing.crop_pct) == ("mine", 0.5)
    assert (vit.spec.preprocessing.interpolation == "bicubic") == (kind[:3] in ("cli", "din"))


def test_a_tower_of_a_parent_is_given_alone() -> None:
    parent = make("LlavaForConditionalGeneration")
    network, _ = converted(parent.model.vision_tower, "tower")
    tower = parent.model.vision_tower
    torch.testing.assert_close(network.eval()(IMAGES), answer(tower, IMAGES), rtol=1e-4, atol=1e-4)
    with pytest.raises(ModelError, match="got CLIPText"):
        adapt(make("CLIPModel").text_model, "x")


def test_other_networks_are_no_instances() -> None:
    assert not is_instance(nn.Linear(1, 1))
