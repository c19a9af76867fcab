"""Models of Hugging Face's library that are in memory already."""

import pytest
import torch

from exporter.core.base.errors import ModelError
from exporter.models.huggingface.instances import converted
from exporter.models.registry import adapt
from tests.models.huggingface.saved import answer, make


def test_a_tower_of_a_parent_is_given_alone() -> None:
    parent = make("LlavaForConditionalGeneration")
    tower = parent.model.vision_tower
    network, _ = converted(tower, "tower")
    images = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(
        network.eval()(images), answer(tower, images), rtol=1e-4, atol=1e-4
    )
    prepared = adapt(make("vit"), "mine", {"crop_pct": 0.5}).spec.preprocessing
    assert (prepared.interpolation, prepared.crop_pct) == ("bilinear", 0.5)
    with pytest.raises(ModelError, match="got CLIPText"):
        adapt(make("CLIPModel").text_model, "x")
