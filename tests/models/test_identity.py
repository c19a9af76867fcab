"""A checkpoint names its network: the same one is built from the file alone, and another name is refused."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from exporter.errors import ArtefactError, CheckpointError
from exporter.models.identity import Identity, read_identity, read_metadata, to_metadata
from exporter.models.networks import ModelRequest, identity_of
from exporter.models.registry import describe, load
from exporter.vocabulary import Interpolation
from tests.vits import TINY_SHAPE, make_model

NAME = "vit_tiny_patch16_224"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Weights of a tiny ViT, with an identity."""
    request = ModelRequest(NAME, model_kwargs=TINY_SHAPE, preprocess={"interpolation": "bilinear"})
    path = tmp_path / "vit.safetensors"
    save_file(make_model().state_dict(), path, to_metadata(identity_of(request, 7)))
    return path


def test_the_network_is_built_from_the_file_alone(checkpoint: Path) -> None:
    vit = load(ModelRequest("", checkpoint))
    assert (vit.spec.name, vit.spec.num_classes, vit.spec.depth) == (NAME, 7, 4)
    assert vit.spec.preprocessing.interpolation == Interpolation.BILINEAR
    for key, value in make_model().state_dict().items():
        assert torch.equal(vit.model.state_dict()[key], value)
    assert describe(ModelRequest("", checkpoint)).spec == vit.spec


def test_the_request_overrides_the_file(checkpoint: Path) -> None:
    request = ModelRequest(NAME, checkpoint, preprocess={"interpolation": "nearest"})
    assert load(request).spec.preprocessing.interpolation == Interpolation.NEAREST


def test_weights_of_another_model_are_refused(checkpoint: Path) -> None:
    with pytest.raises(CheckpointError, match=r"got weights of vit_tiny_patch16_224 \| need weights of deit"):
        load(ModelRequest("deit_small_patch16_224", checkpoint))


def test_a_bundled_model_is_identified_by_its_own_name() -> None:
    identity = identity_of(ModelRequest("digits_vit"), 10)
    assert (identity.name, identity.architecture) == ("digits_vit", NAME)
    assert identity.model_kwargs["num_classes"] == 10


def test_other_files_say_nothing(tmp_path: Path) -> None:
    plain, broken = tmp_path / "plain.safetensors", tmp_path / "broken.safetensors"
    save_file({"x": torch.zeros(1)}, plain)
    broken.write_bytes(b"{")
    for path in (plain, broken, tmp_path / "none.pth"):
        assert read_identity(path) is None
        assert read_metadata(path) == {}


def test_a_broken_identity_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "vit.safetensors"
    (key,) = to_metadata(Identity("a", "b"))
    for text in ("{", "[1]", '{"network": {"name": 3}}'):
        save_file({"x": torch.zeros(1)}, path, {key: text})
        with pytest.raises(ArtefactError, match=r"vit\.safetensors"):
            read_identity(path)
