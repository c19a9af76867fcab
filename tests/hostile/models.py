"""Models that cannot be built, weights that are none, configs of other things, images that nothing can read."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import timm
import torch
from safetensors.torch import save_file

from tests.calibration.samples import bomb
from tests.hostile.flags import CALIBRATE, COMPILE, EXPORT, FINETUNE, MODEL, TUNE
from tests.hostile.inputs import Hostile, Place, each, keys
from tests.vits import TINY_SHAPE, make_model

NAME = "plan --model vit_tiny_patch16_224 --method tome --rho 0.5"
KWARGS = (
    *each(
        f"{NAME} --model-kwargs",
        ("patch_size=0", "vit_tiny"),
        ("patch_size=3.5", "vit_tiny"),
        ("img_size=-1", "vit_tiny"),
        ("img_size=(56,)", "vit_tiny"),
        ("img_size=3 patch_size=4 dynamic_img_size=True", "vit_tiny"),
        (
            "img_size=30 patch_size=8 dynamic_img_size=True dynamic_img_pad=True",
            "got 17 tokens of an image of 30 × 30",
        ),
        ("in_chans=1", "in_chans=1 | need 3"),
        ("num_heads=-3", "num_heads=-3"),
        ("num_heads=5", "vit_tiny"),
        ("depth=200000", "depth=200000 | need a number from 1 to 1000"),
        ("depth=two", "vit_tiny"),
        ("mlp_ratio=1e400", "mlp_ratio"),
        ("drop_rate=2", "vit_tiny"),
        ("norm_layer=nosuch", "vit_tiny"),
        ("global_pool=nosuch", "vit_tiny"),
        ("class_token=False", "vit_tiny"),
        ("no_such_argument=1", "no_such_argument"),
        ("checkpoint_path=/etc/passwd", "checkpoint_path"),
        ("checkpoint_path=weights", " or --checkpoint FILE"),
        ("pretrained=True", "pretrained"),
        ("img_size={{}}", "img_size"),
        ("img_size={{[]:1}}", "img_size"),
        ("img_size", "img_size"),
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
        (
            "preprocess = { crop_mode = 'zzz' }",
            "crop mode | got 'zzz' | need one of center",
        ),
        (
            "preprocess = { interpolation = 'magic' }",
            "interpolation | got 'magic' | need one of nearest",
        ),
        (
            "preprocess = { std = [0.5,0,0.5] }",
            "need deviations on a scale from 0 to 1",
        ),
        ("preprocess = { std = [58.4,57.1,57.4] }", "on a scale from 0 to 1"),
        ("preprocess = { std = [0.5,0.5,nan] }", "got (0.5, 0.5, nan)"),
        ("preprocess = { mean = [inf,0,0] }", "got (inf, 0.0, 0.0)"),
        (
            "preprocess = { mean = [1e300,0,0] }",
            "need means of channels on a scale from 0 to 1",
        ),
        (
            "preprocess = { mean = [0.5,0.5] }",
            "preprocessing | got 2 numbers | need numbers, three",
        ),
        (
            "preprocess = { mean = 'half' }",
            "preprocessing | got 'half' | need numbers, three",
        ),
        ("preprocess = { nosuch = 1 }", "nosuch"),
    ),
)


def _weights(change: Callable[[dict[str, Any]], object], place: Place) -> None:
    state = dict(make_model(num_classes=2).state_dict())
    content = change(state)
    torch.save(state if content is None else content, place.work / "w.pth")


def _set(name: str, value: object) -> Callable[[dict[str, Any]], None]:
    def change(state: dict[str, Any]) -> None:
        state[name] = value(state[name]) if callable(value) else value

    return change


def _every(
    value: Callable[[torch.Tensor], torch.Tensor],
) -> Callable[[dict[str, Any]], None]:
    def change(state: dict[str, Any]) -> None:
        state.update({name: value(tensor) for name, tensor in state.items()})

    return change


HEAD, PLACES = "head.weight", "pos_embed"
WEIGHTS: dict[str, Callable[[dict[str, Any]], object]] = {
    "nan": _every(lambda tensor: tensor * float("nan")),
    "inf": _set("blocks.3.mlp.fc2.weight", lambda tensor: tensor + torch.inf),
    "huge": _every(lambda tensor: tensor * 1e30),
    "all zero": _every(torch.zeros_like),
    "int8": _every(lambda tensor: tensor.to(torch.int8)),
    "complex": _every(lambda tensor: tensor.to(torch.complex64)),
    "head without rows": _set(HEAD, lambda tensor: tensor[:0]),
    "0-d head": _set(HEAD, torch.tensor(1.0)),
    "1-d places": _set(PLACES, lambda tensor: tensor.flatten()),
    "meta": _set(HEAD, lambda tensor: tensor.to("meta")),
    "a number": _set(HEAD, 3.0),
    "missing": lambda state: {
        name: value for name, value in state.items() if name != "norm.weight"
    },
    "integer keys": lambda _: {1: torch.zeros(2)},
    "empty dict": lambda _: {},
    "number alone": lambda _: 7,
    "other grid": _set(PLACES, lambda tensor: tensor[:, :11]),
    "other heads": lambda _: make_model(embed_dim=24).state_dict(),
}


# Weights that load, but tell no images apart.
DUMB = {
    "huge": "logits with NaN or infinity",
    "all zero": "logits with one value everywhere",
}


def _checkpoints() -> Iterator[Hostile]:
    line = f"{CALIBRATE} --checkpoint {{work}}/w.pth"
    for name, change in WEIGHTS.items():
        yield Hostile(
            line, DUMB.get(name, "w.pth"), prepare=partial(_weights, change), name=name
        )


# What prunes without a calibration, or does not prune, refuses them before the work too.
UNCALIBRATED = (
    f"{COMPILE} --method tome",
    EXPORT,
    f"{FINETUNE} --method tome",
    f"depth apply {MODEL} --attention 2 --out {{work}}/d.safetensors",
    f"depth choose {MODEL} --images {{images}} --attention-units 2 --out {{work}}/d.safetensors",
    f"depth choose {MODEL} --images {{images}} --eval-images {{images}} --units 2 --out {{work}}/c.safetensors",
    TUNE,
)


def _uncalibrated() -> Iterator[Hostile]:
    for line in UNCALIBRATED:
        prepare = partial(_weights, WEIGHTS["nan"])
        command = f"{line} --checkpoint {{work}}/w.pth"
        yield Hostile(command, "w.pth", prepare=prepare, name="nan")
    for name in DUMB:
        command = f"{UNCALIBRATED[0]} --checkpoint {{work}}/w.pth"
        prepare = partial(_weights, WEIGHTS[name])
        yield Hostile(command, "are they trained?", prepare=prepare, name=name)
    for line in (COMPILE, FINETUNE, TUNE):
        command, name = f"{line} --dry-run --checkpoint {{work}}/w.pth", "other heads"
        prepare = partial(_weights, WEIGHTS[name])
        yield Hostile(command, "w.pth", prepare=prepare, name=name)


def _tower(place: Place) -> None:
    torch.save(
        timm.create_model(TOWER, **TINY_SHAPE).state_dict(), place.work / "w.pth"
    )
    (place.work / "r.toml").write_text("[calibrate]\ngamma = 2\n", encoding="utf-8")


# A CLIP tower: it gives an embedding, so that it has no top-1 and none of the outputs of a classifier.
TOWER = "vit_xsmall_patch16_clip_224"
NO_TOP1 = (
    f"error: {TOWER} | got a model without logits, which has no top-1 | need a classifier | "
    "text_embeddings in a recipe makes a tower one; compile --rho R says how what it gives agrees"
)
NO_OUTPUT = (
    " | need embedding, tokens, grid, or layer:N with N from 1 to 4 or from -4 to -1"
)
OF_TOWERS = (
    *((f"{TUNE} {goal}", NO_TOP1) for goal in ("", "--metric agreement")),
    *(
        (f"{COMPILE} --outputs {name}", f"'{name}'{NO_OUTPUT}")
        for name in ("logits", "layer:5")
    ),
    (f"{CALIBRATE} --recipe {{work}}/r.toml", "1 for an embedding"),
)


def _towers() -> Iterator[Hostile]:
    for line, says in OF_TOWERS:
        command = f"{line} --model {TOWER} --checkpoint {{work}}/w.pth"
        yield Hostile(command, says, prepare=_tower, name="a tower")


def _pickle(place: Place) -> None:
    torch.save({"run": print}, place.work / "w.pth")


def _text(place: Place) -> None:
    (place.work / "w.pth").write_text("root:x:0:0:root:/root:/bin/sh\n")


def _safetensors(metadata: dict[str, str], place: Place) -> None:
    state = {
        name: value.contiguous()
        for name, value in make_model(num_classes=2).state_dict().items()
    }
    save_file(state, place.work / "w.safetensors", metadata=metadata)


IDENTITIES = {
    "no JSON": {"star_export": "{"},
    "a list": {"star_export": "[]"},
    "deep": {"star_export": "[" * 100_000},
    "no network": {"star_export": '{"network": 7}'},
    "no schedule": {"star_export": '{"schedule": 1}'},
    "no depth": {"star_export": '{"depth": "all"}'},
}


def _files() -> Iterator[Hostile]:
    for name, prepare in (("code", _pickle), ("text", _text)):
        yield Hostile(
            f"{CALIBRATE} --checkpoint {{work}}/w.pth",
            "w.pth",
            prepare=prepare,
            name=name,
        )
    for name, metadata in IDENTITIES.items():
        line = f"{CALIBRATE} --checkpoint {{work}}/w.safetensors"
        yield Hostile(
            line, "w.safetensors", prepare=partial(_safetensors, metadata), name=name
        )


VIT = {
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
CONFIGS: dict[str, Any] = {
    "a list": [],
    "empty": {},
    "other model": {**VIT, "model_type": "bert", "architectures": ["BertModel"]},
    "number for the architecture": {**VIT, "architectures": 7},
}
VALUES: tuple[tuple[str, Any, str], ...] = (
    *(
        ("hidden_size", value, "its config, of which")
        for value in ("wide", 0, True, 10**400)
    ),
    ("num_attention_heads", 7, "hf | got dim should be divisible by num_heads"),
    *(("image_size", value, "hf | got ") for value in ([], [32, 0], "large", 10**400)),
    ("num_channels", 1, "in_chans=1 | need 3"),
    ("id2label", [], "its config, of which"),
    ("hidden_act", "nosuch", "got hidden_act 'nosuch' | need one of gelu"),
    *(
        ("layer_norm_eps", value, "'layer_norm_eps' expected float")
        for value in ("tiny", 10**400)
    ),
    ("qkv_bias", "yes", "'qkv_bias' expected bool"),
    ("auto_map", {"AutoConfig": "code.Config"}, "hf | got "),
)


def _config(content: object, place: Place) -> None:
    folder = place.work / "hf"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(content), encoding="utf-8")


def _configs() -> Iterator[Hostile]:
    line = "calibrate --model {work}/hf --images {images} --out {work}/c.safetensors"
    for name, content in {"whole, but without weights": VIT, **CONFIGS}.items():
        yield Hostile(line, "hf", prepare=partial(_config, content), name=name)
    for key, value, says in VALUES:
        name = f"{key} {value!r:.20}"
        yield Hostile(
            line, says, prepare=partial(_config, {**VIT, key: value}), name=name
        )


PROCESSORS: dict[str, Any] = {
    "a number for the mean": {"image_mean": 5},
    "a rescaling to nothing": {"rescale_factor": 1e-300},
    "a word for a size": {"size": "large"},
    "an infinite size": {"size": {"height": float("inf")}},
    "a size of many pixels": {"size": {"height": 10**9, "width": 10**9}},
    "a size of many digits": {"size": "9" * 5001},
    "a list for a filter": {"resample": []},
    "a crop of small images": {
        "image_processor_type": "CLIPImageProcessor",
        "do_resize": False,
        "crop_size": 32,
    },
    "code for a class": {
        "auto_map": {"AutoImageProcessor": "code.Processor"},
        "size": "x",
    },
}


def _processor(content: object, place: Place) -> None:
    _config(VIT, place)
    (place.work / "hf" / "preprocessor_config.json").write_text(
        json.dumps(content), encoding="utf-8"
    )


def _index(content: object, place: Place) -> None:
    _config(VIT, place)
    index = place.work / "hf" / "model.safetensors.index.json"
    index.write_text(
        json.dumps({"metadata": {}, "weight_map": content}), encoding="utf-8"
    )


def _repositories() -> Iterator[Hostile]:
    line = "calibrate --model {work}/hf --images {images} --out {work}/c.safetensors"
    for name, content in PROCESSORS.items():
        says = "image processor"
        yield Hostile(line, says, prepare=partial(_processor, content), name=name)
    for shards in (
        7,
        {"a": 7},
        {"a": "../x.safetensors"},
        {"a": ".."},
        {"a": "/etc/passwd"},
    ):
        says = "its weights, of which"
        yield Hostile(
            line, says, prepare=partial(_index, shards), name=f"weights in {shards}"
        )
    yield Hostile(
        line,
        "its weights, of which",
        prepare=partial(_index, {"a": "b.bin"}),
        name="weights in no file",
    )


def _folder(place: Place, name: str) -> Path:
    folder = place.work / "images" / name
    folder.mkdir(parents=True)
    return folder


def _noise(place: Place) -> None:
    for name in ("class_0", "class_1"):
        (_folder(place, name) / "0.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(64))


def _bomb(place: Place) -> None:
    for name in ("class_0", "class_1"):
        bomb(_folder(place, name) / "0.png", 60_000, 60_000)


def _empty(place: Place) -> None:
    _folder(place, "class_0")


def _pipe(place: Place) -> None:
    os.mkfifo(_folder(place, "class_0") / "0.png")


def _three_classes(place: Place) -> None:
    for name in ("a", "b", "c"):
        shutil.copy(place.images / "class_0" / "0.png", _folder(place, name))


def _newline(place: Place) -> None:
    (_folder(place, "class_0") / "x\nerror: forged.png").write_bytes(b"no image")


PICTURES = {
    "noise": _noise,
    "bomb": _bomb,
    "empty": _empty,
    "pipe": _pipe,
    "newline in a name": _newline,
}


# Class maps that Python and NumPy would take.
CLASS_MAPS = (
    ('{"class_0": 0, "class_1": 1, "class_0": 1}', "", "the key 'class_0' twice"),
    ('{"class_0": 0, "class_1": 0}', "--subset", "1 class to choose among"),
)


def _class_map(content: str, place: Place) -> None:
    (place.work / "map.json").write_text(content, encoding="utf-8")


def _class_maps() -> Iterator[Hostile]:
    line = "eval {folder} --images {images} --class-map {work}/map.json"
    for content, more, says in CLASS_MAPS:
        prepare = partial(_class_map, content)
        yield Hostile(f"{line} {more}", says, prepare=prepare, name=content)


def _pictures() -> Iterator[Hostile]:
    lines = (
        f"calibrate {MODEL} --images {{work}}/images --out {{work}}/c.safetensors",
        f"{COMPILE} --images {{work}}/images",
        "eval {folder} --images {work}/images",
    )
    for (name, prepare), line in zip(PICTURES.items(), cycle(lines)):
        yield Hostile(line, "image", prepare=prepare, name=name)
    yield Hostile(
        lines[2], "3 class folders", prepare=_three_classes, name="three classes"
    )


MODELS = (
    *KWARGS,
    *_checkpoints(),
    *_uncalibrated(),
    *_towers(),
    *_files(),
    *_configs(),
    *_repositories(),
    *_pictures(),
    *_class_maps(),
)
