"""Models of Hugging Face's library that are in memory already; they and files give the same weights of timm's."""

from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import load_file

from exporter.errors import ModelError
from exporter.models.huggingface.instances import converted, is_instance
from exporter.models.huggingface.keys import to_timm
from exporter.models.huggingface.kinds import network_of
from exporter.models.registry import adapt
from exporter.models.timm_arguments import arguments

pytest.importorskip("transformers")
from tests.models.huggingface.saved import KINDS, answer, make, save

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


@pytest.mark.parametrize("kind", KINDS)
def test_files_and_instances_give_every_weight_of_the_network(tmp_path: Path, kind: str) -> None:
    model = save(make(kind), tmp_path)
    config = {**model.config.to_dict(), "architectures": [type(model).__name__]}
    architecture, kwargs = network_of(config, "x")
    own = timm.create_model(architecture, **arguments(kwargs, "x")).state_dict()
    from_file = to_timm(load_file(tmp_path / "model.safetensors"), config)
    from_memory = to_timm(model.state_dict(), config)
    assert from_file.keys() == from_memory.keys() == own.keys()
    for key, value in own.items():
        assert from_file[key].shape == value.shape
        assert torch.equal(from_file[key], from_memory[key])


def test_what_no_answer_depends_on_is_left_out() -> None:
    state = {
        **dict.fromkeys(
            ("pooler.dense.weight", "vit.pooler.dense.bias", "embeddings.mask_token"), torch.zeros(1)
        ),
        **dict.fromkeys(
            ("text_model.x", "logit_scale", "vision_model.embeddings.position_ids"), torch.zeros(1)
        ),
    }
    assert to_timm(state, {}) == {}
