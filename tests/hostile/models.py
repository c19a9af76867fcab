"""Models that cannot be built, weights that are none, configs of other things, images that nothing can read."""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from itertools import cycle
from typing import Any

import timm
import torch
from safetensors.torch import save_file
from torch import Tensor

from tests.calibration.samples import bomb
from tests.hostile.files import pipe_at
from tests.hostile.flags import CALIBRATE, COMPILE, EVAL, EXPORT, MODEL, TUNE
from tests.hostile.inputs import (
    Hostile,
    Place,
    Prepare,
    bytes_at,
    each,
    folder_at,
    keys,
    text_at,
)
from tests.vits import TINY_SHAPE, make_model

NAME = "plan --model vit_tiny_patch16_224 --method tome --rho 0.5"
BUILT = (
    *each(
        f"{NAME} --model-kwargs",
        ("patch_size=0", "vit_tiny"),
        ("img_size=(56,)", "vit_tiny"),
        ("img_size=3 patch_size=4 dynamic_img_size=True", "a grid of 0 × 0 patches"),
        (
            "img_size=30 patch_size=8 dynamic_img_size=True dynamic_img_pad=True",
            "got 17 tokens of an image of 30 × 30",
        ),
        ("in_chans=1", "in_chans=1 | need 3"),
        ("num_heads=-3", "num_heads=-3"),
        ("depth=200000", "depth=200000 | need a number from 1 to 1000"),
        ("mlp_ratio=1e400", "mlp_ratio"),
        ("norm_layer=nosuch", "vit_tiny"),
        ("class_token=False", "vit_tiny"),
        ("no_such_argument=1", "no_such_argument"),
        ("checkpoint_path=/etc/passwd", "checkpoint_path"),
        ("checkpoint_path=weights", " or --checkpoint FILE"),
        ("pretrained=True", "pretrained"),
        ("img_size={{[]:1}}", "img_size"),
        ("=3", "model-kwargs"),
        ("num_classes=-1", "num_classes=-1"),
    ),
    *each(
        "plan --model vit_small_patch16_dinov3 --method tome --rho 0.5 --model-kwargs",
        ("norm_eps=[1]", "need a number above 0 and below 1"),
        ("rope_grid_indexing=[1]", "rope_grid_indexing"),
    ),
    *keys(
        CALIBRATE,
        ("preprocess = { crop_pct = 0 }", "crop_pct=0.0 | need a share in [0.1, 1]"),
        (f"preprocess = {{ crop_pct = {10**400} }}", "too large"),
        ("preprocess = { crop_mode = 'zzz' }", "got 'zzz' | need one of center"),
        ("preprocess = { std = [58.4,57.1,57.4] }", "on a scale from 0 to 1"),
        ("preprocess = { mean = [inf,0,0] }", "got (inf, 0.0, 0.0)"),
        ("preprocess = { mean = [0.5,0.5] }", "got 2 numbers | need numbers, three"),
        ("preprocess = { mean = 'half' }", "got 'half' | need numbers, three"),
        ("preprocess = { nosuch = 1 }", "nosuch"),
    ),
)

State = dict[Any, Any]


def _saved(content: Callable[[State], object]) -> Prepare:
    """A checkpoint of what becomes of the weights."""

    def prepare(place: Place) -> None:
        state = dict(make_model(num_classes=2).state_dict())
        torch.save(content(state), place.work / "w.pth")

    return prepare


def _all(change: Callable[[Tensor], Tensor]) -> Prepare:
    return _saved(lambda state: {name: change(state[name]) for name in state})


def _head(change: Callable[[Tensor], object]) -> Prepare:
    return _saved(lambda state: {**state, "head.weight": change(state["head.weight"])})


NAN = _all(lambda tensor: tensor * float("nan"))
ZEROS = _all(torch.zeros_like)
OTHER_HEADS = _saved(lambda _: make_model(embed_dim=24).state_dict())
# What the answer says of weights that load, but tell no images apart, or names: the file.
WEIGHTS: Mapping[str, tuple[Prepare, str]] = {
    "nan": (NAN, "w.pth"),
    "huge": (_all(lambda tensor: tensor * 1e30), "logits with NaN or infinity"),
    "all zero": (ZEROS, "logits with one value everywhere"),
    "int8": (_all(lambda tensor: tensor.to(torch.int8)), "w.pth"),
    "complex": (_all(lambda tensor: tensor.to(torch.complex64)), "w.pth"),
    "0-d head": (_head(lambda _: torch.tensor(1.0)), "w.pth"),
    "meta": (_head(lambda head: head.to("meta")), "w.pth"),
    "a number": (_head(lambda _: 3.0), "w.pth"),
    "a weight left out": (
        _saved(lambda state: {n: v for n, v in state.items() if n != "norm.weight"}),
        "w.pth",
    ),
    "integer keys": (_saved(lambda _: {1: torch.zeros(2)}), "w.pth"),
    "no keys": (_saved(lambda _: {}), "w.pth"),
    "other heads": (OTHER_HEADS, "w.pth"),
    "code": (_saved(lambda _: {"run": print}), "w.pth"),
    "text": (text_at("w.pth", "root:x:0:0:root:/root:/bin/sh\n"), "w.pth"),
}
TOWER = "vit_xsmall_patch16_clip_224"
# It gives an embedding, so that it has no top-1 and none of the outputs of a classifier.
OF_TOWERS = (
    (
        TUNE,
        f"error: {TOWER} | got a model without logits, which has no top-1 | need a classifier | "
        "text_embeddings in a recipe makes a tower one; compile --rho R says how what it gives agrees",
    ),
    (
        f"{COMPILE} --outputs logits",
        "'logits' | need embedding, tokens, grid, or layer:N with N from 1 to 4 or from -4 to -1",
    ),
    (f"{CALIBRATE} --recipe {{work}}/r.toml", "1 for an embedding"),
)


def _tower(place: Place) -> None:
    tower = timm.create_model(TOWER, **TINY_SHAPE)
    torch.save(tower.state_dict(), place.work / "w.pth")
    text_at("r.toml", "[calibrate]\ngamma = 2\n")(place)


def _identity(told: str) -> Prepare:
    """Weights that say in these words what they are of."""

    def prepare(place: Place) -> None:
        state = make_model(num_classes=2).state_dict()
        whole = {name: value.contiguous() for name, value in state.items()}
        save_file(whole, place.work / "w.pth", metadata={"star_export": told})

    return prepare


def _checkpoints() -> Iterator[Hostile]:
    """All by a calibration; what prunes without one, or does not prune, refuses them before the work too."""
    own = "--checkpoint {work}/w.pth"
    for name, (prepare, says) in WEIGHTS.items():
        yield Hostile(f"{CALIBRATE} {own}", says, prepare=prepare, name=name)
    for line in (f"{COMPILE} --method tome", EXPORT, TUNE):
        yield Hostile(f"{line} {own}", "w.pth", prepare=NAN, name="nan")
    line = f"{COMPILE} --method tome {own}"
    yield Hostile(line, "are they trained?", prepare=ZEROS, name="all zero")
    line = f"{COMPILE} --dry-run {own}"
    yield Hostile(line, "w.pth", prepare=OTHER_HEADS, name="other heads")
    for line, says in OF_TOWERS:
        command = f"{line} --model {TOWER} {own}"
        yield Hostile(command, says, prepare=_tower, name="a tower")
    for told in ("[" * 100_000, '{"network": 7}', '{"schedule": 1}'):
        identity = _identity(told)
        yield Hostile(f"{CALIBRATE} {own}", "w.pth", prepare=identity, name=told[:20])


VIT: dict[str, Any] = {
    "model_type": "vit",
    "architectures": ["ViTForImageClassification"],
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 96,
    "image_size": 32,
    "patch_size": 8,
    "num_channels": 3,
    "id2label": {"0": "a", "1": "b"},
}
CONFIGS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"model_type": "bert", "architectures": ["BertModel"]}, "hf"),
    ({"architectures": 7}, "hf"),
    ({"hidden_size": 10**400}, "its config, of which"),
    ({"num_attention_heads": 7}, "got dim should be divisible by num_heads"),
    ({"image_size": []}, "hf | got "),
    ({"num_channels": 1}, "in_chans=1 | need 3"),
    ({"id2label": []}, "its config, of which"),
    ({"hidden_act": "nosuch"}, "got hidden_act 'nosuch' | need one of gelu"),
    ({"layer_norm_eps": "tiny"}, "'layer_norm_eps' expected float"),
    ({"auto_map": {"AutoConfig": "code.Config"}}, "hf | got "),
)
PROCESSORS: tuple[dict[str, Any], ...] = (
    {"rescale_factor": 1e-300},
    {"size": "large"},
    {"size": {"height": float("inf")}},
    {"size": {"height": 10**9, "width": 10**9}},
    {"size": "9" * 5001},
    {"resample": []},
    {"auto_map": {"AutoImageProcessor": "code.Processor"}, "size": "x"},
)
SHARDS: tuple[object, ...] = (7, {"a": 7}, {"a": "../x.safetensors"}, {"a": "b.bin"})


def _folder(config: object, **others: object) -> Prepare:
    """A Hugging Face folder: its config, and other files by their names."""

    def prepare(place: Place) -> None:
        for name, content in {"config": config, **others}.items():
            file = f"hf/{name.replace('__', '.')}.json"
            text_at(file, json.dumps(content))(place)

    return prepare


def _huggingface() -> Iterator[Hostile]:
    line = "calibrate --model {work}/hf --images {images} --out {work}/c.safetensors"
    yield Hostile(line, "hf", prepare=_folder(VIT), name="no weights")
    for change, says in CONFIGS:
        prepare = _folder({**VIT, **change})
        yield Hostile(line, says, prepare=prepare, name=f"{change!r:.30}")
    for content in PROCESSORS:
        prepare = _folder(VIT, preprocessor_config=content)
        says = "image processor"
        yield Hostile(line, says, prepare=prepare, name=f"{content!r:.50}")
    for shards in SHARDS:
        index = {"metadata": {}, "weight_map": shards}
        prepare = _folder(VIT, model__safetensors__index=index)
        says = "its weights, of which"
        yield Hostile(line, says, prepare=prepare, name=f"weights in {shards}")


def _bomb(place: Place) -> None:
    folder_at("images/class_0")(place)
    bomb(place.work / "images/class_0/0.png", 60_000, 60_000)


def _three_classes(place: Place) -> None:
    for name in ("a", "b", "c"):
        folder_at(f"images/{name}")(place)
        shutil.copy(place.images / "class_0" / "0.png", place.work / "images" / name)


PICTURES: Mapping[str, Prepare] = {
    "noise": bytes_at("images/class_0/0.png", b"\x89PNG\r\n\x1a\n" + bytes(64)),
    "bomb": _bomb,
    "empty": folder_at("images/class_0"),
    "pipe": pipe_at("images/class_0/0.png"),
    "newline in a name": text_at("images/class_0/x\nerror: forged.png", "no image"),
}
# Class maps that Python and NumPy would take.
CLASS_MAPS = (
    ('{"class_0": 0, "class_1": 1, "class_0": 1}', "", "the key 'class_0' twice"),
    ('{"class_0": 0, "class_1": 0}', "--subset", "1 class to choose among"),
)


def _pictures() -> Iterator[Hostile]:
    lines = (
        f"calibrate {MODEL} --images {{work}}/images --out {{work}}/c.safetensors",
        f"{COMPILE} --images {{work}}/images",
        "eval {folder} --images {work}/images",
    )
    for (name, prepare), line in zip(PICTURES.items(), cycle(lines)):
        yield Hostile(line, "image", prepare=prepare, name=name)
    yield Hostile(lines[2], "3 class folders", prepare=_three_classes)
    for content, more, says in CLASS_MAPS:
        line = f"{EVAL} --class-map {{work}}/map.json {more}"
        prepare = text_at("map.json", content)
        yield Hostile(line, says, prepare=prepare, name=content)


MODELS = (*BUILT, *_checkpoints(), *_huggingface(), *_pictures())
