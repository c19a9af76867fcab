"""Weights that run code or tell no images apart, such folders of Hugging Face, and images that nothing can read."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from safetensors.torch import save_file

from tests.calibration.samples import bomb
from tests.hostile.files import pipe_at
from tests.hostile.flags import CALIBRATE
from tests.hostile.inputs import Hostile, Place, Prepare, folder_at, text_at
from tests.vits import make_model

State = dict[str, Any]


def _saved(content: Callable[[State], object]) -> Prepare:
    """A checkpoint of what becomes of the weights."""

    def prepare(place: Place) -> None:
        state = dict(make_model(num_classes=2).state_dict())
        torch.save(content(state), place.work / "w.pth")

    return prepare


def _deep_identity(place: Place) -> None:
    state = make_model(num_classes=2).state_dict()
    save_file(state, place.work / "w.pth", metadata={"star_export": "[" * 100_000})


# What the answer says of weights, or names: the file.
WEIGHTS: Mapping[str, tuple[Prepare, str]] = {
    "huge": (
        _saved(lambda state: {name: 1e30 * state[name] for name in state}),
        "logits with NaN or infinity",
    ),
    "all zero": (
        _saved(lambda state: {name: 0 * state[name] for name in state}),
        "logits with one value everywhere",
    ),
    "code": (_saved(lambda _: {"run": print}), "w.pth"),
    "a deep identity": (_deep_identity, "w.pth"),
}
VIT: dict[str, Any] = {
    "model_type": "vit",
    "architectures": ["ViTForImageClassification"],
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 96,
    "image_size": 32,
    "patch_size": 8,
    "id2label": {"0": "a", "1": "b"},
}
# By what is wrong, the files of a folder and a part of the answer.
FOLDERS: Mapping[str, tuple[dict[str, object], str]] = {
    "code of a network": (
        {"config": {**VIT, "auto_map": {"AutoConfig": "code.Config"}}},
        "hf | got ",
    ),
    "code of a processor": (
        {
            "config": VIT,
            "preprocessor_config": {
                "auto_map": {"AutoImageProcessor": "code.Processor"},
                "size": "x",
            },
        },
        "image processor",
    ),
    "weights elsewhere": (
        {
            "config": VIT,
            "model.safetensors.index": {
                "metadata": {},
                "weight_map": {"a": "../x.safetensors"},
            },
        },
        "its weights, of which",
    ),
}


def _folder(files: dict[str, object]) -> Prepare:
    def prepare(place: Place) -> None:
        for name, content in files.items():
            text_at(f"hf/{name}.json", json.dumps(content))(place)

    return prepare


def _bomb(place: Place) -> None:
    folder_at("images/class_0")(place)
    bomb(place.work / "images/class_0/0.png", 60_000, 60_000)


PICTURES: Mapping[str, Prepare] = {
    "a bomb": _bomb,
    "a pipe": pipe_at("images/class_0/0.png"),
    "newline in a name": text_at("images/class_0/x\nerror: forged.png", "no image"),
}


def _models() -> Iterator[Hostile]:
    for name, (prepare, says) in WEIGHTS.items():
        line = f"{CALIBRATE} --checkpoint {{work}}/w.pth"
        yield Hostile(line, says, prepare=prepare, name=name)
    for name, (files, says) in FOLDERS.items():
        line = "calibrate --model {work}/hf --images {images} --out {work}/c"
        yield Hostile(line, says, prepare=_folder(files), name=name)
    for name, prepare in PICTURES.items():
        line = f"{CALIBRATE} --images {{work}}/images"
        yield Hostile(line, "image", prepare=prepare, name=name)


MODELS = tuple(_models())
