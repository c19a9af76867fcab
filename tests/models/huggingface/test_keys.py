"""Keys as files have them and keys as instances have them become the same weights of timm's."""

import pytest
import timm
import torch
from safetensors.torch import load_file

from exporter.models.huggingface.keys import to_timm
from exporter.models.huggingface.kinds import network_of
from exporter.models.timm_arguments import arguments

pytest.importorskip("transformers")
from pathlib import Path

from tests.models.huggingface.saved import KINDS, make, save


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
