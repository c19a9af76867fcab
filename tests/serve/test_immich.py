"""The vision half of a CLIP model for Immich, whose loader resizes and crops as `immich_pixels` does."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from PIL import Image

from exporter.core.base.artefact import Artefact
from exporter.core.base.errors import ArtefactError
from exporter.core.base.records import Preprocessing, normalise
from exporter.core.base.vocabulary import (
    CropMode,
    CropRounding,
    Interpolation,
    OutputKind,
)
from exporter.core.verify.onnxruntime_runner import OnnxRuntimeRunner
from exporter.data.pixels import to_input_size, to_pixels
from exporter.serve import immich
from exporter.serve.export_folder import read_folder
from exporter.serve.immich import preprocess_of, write_immich
from tests.folders import write_folder

SHAPES = st.tuples(st.integers(6, 90), st.integers(6, 90))
KNOWN = Preprocessing(
    (3, 16, 16),
    Interpolation.BICUBIC,
    (0.5,) * 3,
    (0.25,) * 3,
    1.0,
    CropMode.CENTER,
    CropRounding.DOWN,
)


def immich_pixels(image: Image.Image, config: dict[str, Any]) -> np.ndarray:
    """The input [3, size, size], from the description of its two modes: squash, or the shorter side and a crop."""
    size = config["size"][0]
    method = Image.Resampling[config["interpolation"].upper()]
    if config["resize_mode"] == "squash":
        image = image.resize((size, size), method)
    else:
        ratio = max(image.size) / min(image.size)
        longer = int(ratio * size)
        sides = (size, longer) if image.width < image.height else (longer, size)
        image = image.resize(sides, method)
        left, top = int(image.width / 2 - size / 2), int(image.height / 2 - size / 2)
        image = image.crop((left, top, left + size, top + size))
    pixels = np.asarray(image, np.float32) / 255
    mean, std = np.float32(config["mean"]), np.float32(config["std"])
    return ((pixels - mean) / std).transpose(2, 0, 1)


@settings(max_examples=60)
@given(shape=SHAPES, mode=st.sampled_from([CropMode.CENTER, CropMode.SQUASH]))
def test_its_pixels_are_ours(shape: tuple[int, int], mode: CropMode) -> None:
    preprocessing = replace(KNOWN, crop_mode=mode)
    ratio = max(shape) / min(shape)
    if int(ratio * 16) != int(16 * max(shape) / min(shape)):
        reject()  # it rounds the ratio before it multiplies
    pixels = np.random.default_rng(shape[0]).integers(0, 256, (*shape, 3), np.uint8)
    image = Image.fromarray(pixels)
    ours = normalise(to_pixels(to_input_size(image, preprocessing)), preprocessing)
    theirs = immich_pixels(image, preprocess_of(preprocessing, "file"))
    np.testing.assert_allclose(theirs, ours, atol=1e-5)


@pytest.mark.parametrize(
    "changes",
    [
        {"crop_rounding": CropRounding.EVEN},
        {"crop_mode": CropMode.BORDER},
        {"crop_pct": 0.875},
        {"input_size": (3, 16, 24)},
    ],
)
def test_images_that_it_fits_otherwise_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ArtefactError, match="need a square"):
        preprocess_of(replace(KNOWN, **changes), "file")


def test_the_half_of_a_tower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, out = write_folder(tmp_path / "folder"), tmp_path / "clip/ViT-B-32__openai"
    with pytest.raises(ArtefactError, match="got logits first"):
        write_immich(tmp_path / "folder", out)
    export = read_folder(tmp_path / "folder")
    monkeypatch.setattr(immich, "read_for", lambda *_: _with_embedding(export))
    (out / "textual").mkdir(parents=True)
    (model,) = write_immich(tmp_path / "folder", out).models
    assert model == out / "visual/model.onnx" and (out / "textual").is_dir()
    config = json.loads((out / "visual/preprocess_cfg.json").read_text())
    assert (config["size"], config["resize_mode"]) == ([4, 4], "shortest")
    images = np.ones((1, 3, 4, 4), np.float32)
    with OnnxRuntimeRunner(files.pruned) as ours, OnnxRuntimeRunner(model) as theirs:
        expected = ours.run({"images": images})["logits"]
        np.testing.assert_array_equal(theirs.run({"image": images})["logits"], expected)


def _with_embedding(export: Any) -> Any:
    """The same folder, as if what it gives were an embedding, resized without a crop's share."""
    artefact: Artefact = export.models.pruned.artefact
    (output,) = artefact.spec.outputs
    spec = replace(
        artefact.spec,
        outputs=(replace(output, kind=OutputKind.EMBEDDING),),
        preprocessing=replace(
            artefact.spec.preprocessing, crop_pct=1.0, crop_mode=CropMode.CENTER
        ),
    )
    pruned = replace(export.models.pruned, artefact=replace(artefact, spec=spec))
    return replace(export, models=replace(export.models, pruned=pruned))
