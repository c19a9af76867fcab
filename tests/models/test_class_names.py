"""The names of classes arrive from configs, checkpoints, timm and torchvision; what is no plain form gives none."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import load_file, save_file

from exporter.bundled import CIFAR_VIT
from exporter.core.base.errors import CheckpointError
from exporter.core.base.vocabulary import Interpolation
from exporter.models.class_names import (
    NAMELESS,
    ClassNames,
    config_names,
    network_names,
)
from exporter.models.identity import (
    read_identity,
    read_metadata,
    save_weights,
)
from exporter.models.networks import identity_of, source_of
from exporter.models.registry import adapt, describe, load
from exporter.models.request import ModelRequest
from exporter.models.training_record import training_record
from tests.vits import TINY, TINY_SHAPE, make_model

NAME = "vit_tiny_patch16_224"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Weights of a tiny ViT, with an identity."""
    request = ModelRequest(
        NAME, model_kwargs=TINY_SHAPE, preprocess={"interpolation": "bilinear"}
    )
    path = tmp_path / "vit.safetensors"
    save_weights(make_model(), identity_of(request, 7), path)
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
    with pytest.raises(
        CheckpointError,
        match=r"got weights of vit_tiny_patch16_224 \| need weights of deit",
    ):
        load(ModelRequest("deit_small_patch16_224", checkpoint))


def test_a_bundled_model_is_identified_by_its_own_name() -> None:
    identity = identity_of(ModelRequest("digits_vit"), 10)
    assert (identity.name, identity.architecture) == ("digits_vit", NAME)
    assert identity.model_kwargs["num_classes"] == 10


def test_a_weight_that_layers_share_is_written_for_each(tmp_path: Path) -> None:
    model: Any = make_model()
    model.blocks[1].mlp.fc1.weight = model.blocks[0].mlp.fc1.weight
    save_weights(model, None, tmp_path / "shared.safetensors")
    again = load_file(tmp_path / "shared.safetensors")
    assert again.keys() == model.state_dict().keys()
    assert again["blocks.1.mlp.fc1.weight"].equal(again["blocks.0.mlp.fc1.weight"])


NAMES = ("zebra", "cat", "dog")


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        ({"0": "zebra", "1": "cat", "2": "dog"}, NAMES),
        ({2: "dog", 0: "zebra", 1: "cat"}, NAMES),
        ({"0": 3, "1": 1}, ("3", "1")),
        ({"0": "LABEL_0", "1": "LABEL_1"}, ()),
        ({}, ()),
        (None, ()),
        ({"1": "cat", "2": "dog"}, "not used"),
        ({"0": "cat", "2": "dog"}, "not used"),
        ({"0": "cat", "1": None}, "not used"),
    ],
)
def test_the_labels_of_a_config(
    labels: object, names: tuple[str, ...] | str, caplog: pytest.LogCaptureFixture
) -> None:
    refused = isinstance(names, str)
    config = SimpleNamespace(id2label=labels)
    assert config_names(config, "mine").names == (() if refused else names)
    said = (
        "mine: id2label is not used: it does not give a name to each index from 0 to 1"
    )
    assert [record.getMessage() for record in caplog.records] == [said] * refused


PLACEHOLDERS = {0: "LABEL_0", 1: "LABEL_1", 2: "LABEL_2"}
BY_INDEX = dict(enumerate(NAMES))


@pytest.mark.parametrize(
    "by_index", [PLACEHOLDERS, BY_INDEX, None, {}, {1: "cat", 2: "dog"}]
)
@pytest.mark.parametrize(
    "by_name", [PLACEHOLDERS, BY_INDEX, None, {}, {1: "cat", 2: "dog"}]
)
def test_names_come_from_each_field_that_has_them(by_index: Any, by_name: Any) -> None:
    inverted = (
        None if by_name is None else {name: index for index, name in by_name.items()}
    )
    config = SimpleNamespace(id2label=by_index, label2id=inverted)
    has_names = BY_INDEX in (by_index, by_name)
    assert config_names(config, "mine").names == (NAMES if has_names else ())


def test_fields_of_a_config_that_contradict_each_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    label2id = {"cat": 0, "dog": 1, "zebra": 2}
    config = SimpleNamespace(id2label=BY_INDEX, label2id=label2id)
    assert config_names(config, "mine").names == ()
    (record,) = caplog.records
    said = "mine: class names are not used: id2label and label2id differ"
    assert record.getMessage().startswith(said)


@pytest.mark.parametrize(
    ("key", "told", "names"),
    [
        ("class_names", list(NAMES), NAMES),
        ("classes", NAMES, NAMES),
        ("names", dict(enumerate(NAMES)), NAMES),
        ("id2label", {"0": "zebra", "1": "cat", "2": "dog"}, NAMES),
        ("idx_to_class", {1: "cat", 0: "zebra", 2: "dog"}, NAMES),
        ("class_to_idx", {"cat": 1, "zebra": 0, "dog": 2}, NAMES),
        ("class_to_idx", {"cat": 1, "zebra": 1}, ()),
        ("class_to_idx", {"cat": 1, "zebra": 2}, ()),
        ("classes", 3, ()),
        ("classes", [3, 5, 7], ()),
        ("names", "abc", ()),
        ("idx_to_class", {0: "a", 2: "b"}, ()),
        ("labels", list(NAMES), ()),
    ],
)
def test_names_beside_weights(
    tmp_path: Path, key: str, told: Any, names: tuple[str, ...]
) -> None:
    weights = make_model(num_classes=3).state_dict()
    torch.save({"state_dict": weights, key: told}, tmp_path / "a.pth")
    torch.save(
        {"state_dict": weights, key: told},
        tmp_path / "b.pth",
        _use_new_zipfile_serialization=False,
    )
    save_file(weights, tmp_path / "a.safetensors", {key: json.dumps(told)})
    for path in sorted(tmp_path.iterdir()):
        assert training_record(path).class_names.names == names
        vit = load(ModelRequest(NAME, path, model_kwargs=TINY_SHAPE))
        assert vit.spec.class_names == names
        assert (
            describe(ModelRequest(NAME, path, model_kwargs=TINY_SHAPE)).spec.class_names
            == names
        )


def test_names_that_contradict_each_other_or_the_head_are_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, weights = tmp_path / "a.pth", make_model(num_classes=3).state_dict()
    torch.save(
        {
            "model": weights,
            "classes": sorted(NAMES),
            "class_to_idx": {"cat": 0, "zebra": 1, "dog": 2},
        },
        path,
    )
    assert training_record(path).class_names.names == ()
    assert "class names are not used: class_to_idx and classes differ" in caplog.text
    torch.save({"model": weights, "classes": ["cat", "dog"]}, path)
    assert (
        load(ModelRequest(NAME, path, model_kwargs=TINY_SHAPE)).spec.class_names == ()
    )
    assert "a.pth names 2 classes, its head has 3: not used" in caplog.text


def test_a_file_that_is_none_has_no_names(tmp_path: Path) -> None:
    (tmp_path / "a.pth").write_bytes(b"no file of torch")
    (tmp_path / "a.safetensors").write_bytes(b"no safetensors")
    save_file({"w": torch.zeros(1)}, tmp_path / "b.safetensors", {"classes": "{"})
    torch.save([1], tmp_path / "b.pth")
    for name in ("a.pth", "a.safetensors", "b.safetensors", "b.pth", "none.pth"):
        assert training_record(tmp_path / name).class_names.names == ()
        assert read_identity(tmp_path / name) is None
        assert read_metadata(tmp_path / name) == {}


def test_the_names_of_timms_config() -> None:
    config = {
        "label_names": ["n1", "n2"],
        "label_descriptions": {"n1": "tench, Tinca tinca", "n2": "n2"},
    }
    model = timm.create_model(
        NAME, **{**TINY, "num_classes": 2}, pretrained_cfg_overlay=config
    )
    assert (
        network_names(model.pretrained_cfg).names
        == adapt(model).spec.class_names
        == ("tench, Tinca tinca, n1", "n2")
    )
    named = ClassNames(("a", "b"), "these")
    assert adapt(model, class_names=named).spec.class_names == named.names
    model.reset_classifier(3)
    assert adapt(model).spec.class_names == ()
    assert network_names(None) == network_names({}) == NAMELESS


def test_names_come_with_the_weights_that_have_them(tmp_path: Path) -> None:
    """A bundled or a pretrained network's names say nothing of other weights."""
    categories = source_of(ModelRequest("torchvision/vit_b_16")).class_names
    assert (len(categories), categories[0]) == (1000, "tench")
    assert source_of(ModelRequest("torchvision/none")).class_names == ()
    assert (
        source_of(ModelRequest("torchvision/vit_b_16", tmp_path / "a.pth")).class_names
        == ()
    )
    assert load(ModelRequest("cifar_vit")).spec.class_names == CIFAR_VIT.class_names
    assert load(ModelRequest("cifar_vit", CIFAR_VIT.weights)).spec.class_names == ()
    assert describe(ModelRequest("cifar_vit", num_classes=3)).spec.class_names == ()
