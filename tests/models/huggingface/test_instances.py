"""Models of Hugging Face's library that are in memory already."""

import pytest
import torch

from exporter.core.base.errors import ModelError
from exporter.models.huggingface.instances import converted, is_instance
from exporter.models.registry import adapt
from tests.models.huggingface.saved import KINDS, answer, make


# Without its head, a SigLIP tower gives its tokens alone.
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "siglip, no head"])
def test_an_instance_is_adapted_with_its_usual_preprocessing(kind: str) -> None:
    model = make(kind)
    assert is_instance(model)
    vit = adapt(model, "mine", {"crop_pct": 0.5})
    images = torch.randn(
        2,
        *vit.spec.preprocessing.input_size,
        generator=torch.Generator().manual_seed(1),
    )
    torch.testing.assert_close(
        vit.model(images), answer(model, images), rtol=1e-4, atol=1e-4
    )
    assert (vit.spec.name, vit.spec.preprocessing.crop_pct) == ("mine", 0.5)
    assert (vit.spec.preprocessing.interpolation == "bicubic") == (
        kind[:3] in ("cli", "din", "sig")
    )


def test_a_tower_of_a_parent_is_given_alone() -> None:
    parent = make("LlavaForConditionalGeneration")
    tower = parent.model.vision_tower
    network, _ = converted(tower, "tower")
    images = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(
        network.eval()(images), answer(tower, images), rtol=1e-4, atol=1e-4
    )
    with pytest.raises(ModelError, match="got CLIPText"):
        adapt(make("CLIPModel").text_model, "x")
