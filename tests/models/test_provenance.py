"""What decides meaning and pixels has a source in every family; a guess is one line that names what settles it."""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import exporter
from exporter.core.base.records import GUESS
from exporter.core.vit.protocol import PrunableViT
from exporter.models.identity import save_weights
from exporter.models.networks import identity_of
from exporter.models.provenance import WHOLE_PREPROCESSING
from exporter.models.request import ModelRequest
from tests.models.huggingface.saved import KINDS, make, save
from tests.vits import FAMILIES, POOLED, TINY_SHAPE, make_model, make_torchvisions

NAME = "vit_tiny_patch16_224"
WHOLE = {
    "interpolation": "bilinear",
    "mean": (0.1, 0.2, 0.3),
    "std": (0.4, 0.5, 0.6),
    "crop_pct": 0.75,
    "crop_mode": "border",
}
MODULES: dict[str, Callable[[], nn.Module]] = {
    **{family: partial(make_model, family) for family in (*FAMILIES, *POOLED)},
    "torchvision": make_torchvisions,
    **{
        f"library's {kind}": partial(make, kind)
        for kind in KINDS
        if kind != "siglip, no head"
    },
}


def guesses(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [message for message in caplog.messages if GUESS in message]


@pytest.mark.parametrize("family", MODULES)
def test_a_module_tells_all_but_how_images_are_prepared(
    family: str, caplog: pytest.LogCaptureFixture
) -> None:
    model = MODULES[family]()
    sources = exporter.load_model(model, name="mine").spec.sources
    assert (sources.network, sources.class_names) == ("the module", "")
    assert sources.preprocessing.startswith(GUESS)
    (line,) = guesses(caplog)
    assert line.startswith(
        f"mine: how images are prepared is {sources.preprocessing} ("
    )
    assert all(key in line for key in (*WHOLE_PREPROCESSING, "model.preprocess"))
    caplog.clear()
    vit = exporter.load_model(model, preprocess=WHOLE)
    assert vit.spec.sources.preprocessing == "the request"
    assert not guesses(caplog)
    assert {key: getattr(vit.spec.preprocessing, key) for key in WHOLE} == WHOLE


def test_a_part_of_the_preprocessing_is_a_guess_of_the_rest(
    caplog: pytest.LogCaptureFixture,
) -> None:
    vit = exporter.load_model(make_model(), preprocess={"crop_pct": 1.0})
    source = f"{GUESS}timm's for {NAME}; crop_pct by the request"
    assert vit.spec.sources.preprocessing == source
    assert len(guesses(caplog)) == 1


def _weights(folder: Path, **beside: Any) -> ModelRequest:
    path = folder / "weights.pth"
    torch.save({"state_dict": make_model().state_dict(), **beside}, path)
    return ModelRequest(NAME, path, model_kwargs=TINY_SHAPE)


def _own(folder: Path) -> ModelRequest:
    request = ModelRequest(NAME, model_kwargs=TINY_SHAPE)
    path = folder / "own.safetensors"
    save_weights(make_model(), identity_of(request, 7, tuple("abcdefg")), path)
    return ModelRequest("", path)


def _folder(folder: Path) -> ModelRequest:
    save(make("vit"), folder / "mine")
    return ModelRequest(str(folder / "mine"))


def _folder_with_processor(folder: Path) -> ModelRequest:
    request = _folder(folder)
    size = '"size": {"height": 32, "width": 32}, "resample": 2'
    colours = '"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]'
    text = f'{{"image_processor_type": "ViTImageProcessor", {size}, {colours}}}'
    Path(request.name, "preprocessor_config.json").write_text(text, encoding="utf-8")
    return request


def _classes(folder: Path) -> ModelRequest:
    return _weights(
        folder, class_to_idx={name: index for index, name in enumerate("gfedcba")}
    )


def _arguments(folder: Path) -> ModelRequest:
    told = argparse.Namespace(
        crop_pct=None, mean=[0.4], std=[0.1, 0.2, 0.3], interpolation=""
    )
    return _weights(folder, args=told, arch=NAME)


REQUESTS: dict[str, tuple[Callable[[Path], ModelRequest], tuple[str, str, str]]] = {
    "a bundled model": (
        lambda _: ModelRequest("digits_vit"),
        ("the name digits_vit", "the bundled model", "the bundled model"),
    ),
    "weights of another": (
        _weights,
        (f"the name {NAME}", f"{GUESS}the config of {NAME}", ""),
    ),
    "weights with class names": (
        _classes,
        (
            f"the name {NAME}",
            f"{GUESS}the config of {NAME}",
            "class_to_idx of the checkpoint",
        ),
    ),
    "weights with arguments": (
        _arguments,
        (
            f"the name {NAME}",
            f"the config of {NAME}, by the training arguments; mean, std by args of the checkpoint",
            "",
        ),
    ),
    "our checkpoint": (_own, ("the checkpoint",) * 3),
    "a folder": (
        _folder,
        ("its config", f"{GUESS}the usual one of a ViTForImageClassification", ""),
    ),
    "a folder with a processor": (
        _folder_with_processor,
        ("its config", "its image processor", ""),
    ),
}


@pytest.mark.parametrize("kind", REQUESTS)
def test_a_request_has_a_source_for_each_fact(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make_request, expected = REQUESTS[kind]
    sources = exporter.load_model(make_request(tmp_path)).spec.sources
    assert (sources.network, sources.preprocessing, sources.class_names) == expected
    assert len(guesses(caplog)) == sources.preprocessing.startswith(GUESS)


def test_the_sources_are_in_the_files(tmp_path: Path) -> None:
    vit: PrunableViT = exporter.load_model(make_model())
    path = exporter.save(exporter.export(exporter.dense(vit)), tmp_path / "dense.onnx")
    assert exporter.inspect(path)["model"]["sources"] == vars(vit.spec.sources)
