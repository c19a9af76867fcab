"""What is written for Hugging Face's loaders: their names of tensors, their config, their processor's pixels."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import transformers
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image

from exporter.core.base import large_onnx
from exporter.core.base.artefact import Artefact
from exporter.core.base.errors import ArtefactError, OutputError, RecipeError
from exporter.core.base.records import Preprocessing, normalise
from exporter.core.base.targets import ONNXRUNTIME, ONNXRUNTIME_FP16, OPENVINO_BF16
from exporter.core.base.vocabulary import (
    CropMode,
    CropRounding,
    InputKind,
    Interpolation,
    Method,
)
from exporter.core.schedule.plan import manual_schedule
from exporter.core.schedule.policy import resolve
from exporter.core.schedule.prune import Prune
from exporter.core.verify.onnxruntime_runner import OnnxRuntimeRunner
from exporter.core.vit.spec import with_outputs
from exporter.data.pixels import to_input_size, to_pixels
from exporter.serve.huggingface import (
    CLASSES,
    _named,
    _tensors,
    config_of,
    crop_offset,
    processor_of,
    write_huggingface,
)
from exporter.serve.loaders import ServeSettings
from tests.folders import artefacts, write_folder
from tests.vits import make_vit

SIDES = st.integers(4, 24)
PREPROCESSINGS = st.builds(
    Preprocessing,
    input_size=st.one_of(
        SIDES.map(lambda side: (3, side, side)), st.tuples(st.just(3), SIDES, SIDES)
    ),
    interpolation=st.sampled_from(Interpolation),
    mean=st.tuples(*[st.floats(0.2, 0.8)] * 3),
    std=st.tuples(*[st.floats(0.2, 0.8)] * 3),
    crop_pct=st.one_of(
        st.just(1.0), st.sampled_from([0.875, 0.9, 0.95]), st.floats(0.3, 1)
    ),
    crop_mode=st.sampled_from([*CropMode, CropMode.CENTER, CropMode.SQUASH]),
    crop_rounding=st.sampled_from(CropRounding),
)
SHAPES = st.tuples(st.integers(6, 90), st.integers(6, 90))


def cropped(mode: CropMode, rounding: CropRounding) -> Preprocessing:
    """The preprocessing that leaves out one row and one column of 17."""
    half = (0.5,) * 3
    return Preprocessing(
        (3, 16, 16), Interpolation.BICUBIC, half, half, 0.9, mode, rounding
    )


def grey_levels(
    preprocessing: Preprocessing, folder: Path, image: Image.Image, backend: str
) -> np.ndarray:
    """How far our pixels are from those of the folder's processor, in 256ths of white."""
    processor = transformers.AutoImageProcessor.from_pretrained(folder, backend=backend)
    expected = processor(image, return_tensors="np")["pixel_values"][0]
    pixels = normalise(to_pixels(to_input_size(image, preprocessing)), preprocessing)
    return np.abs(pixels - expected) * np.reshape(preprocessing.std, (3, 1, 1)) * 255


def test_the_processor_makes_the_very_pixels_or_crops_as_far_beside_as_it_says(
    tmp_path: Path,
) -> None:
    outcomes = set[int | None]()

    @example(preprocessing=cropped(CropMode.BORDER, CropRounding.DOWN), shape=(30, 40))
    @example(preprocessing=cropped(CropMode.CENTER, CropRounding.DOWN), shape=(30, 40))
    @example(preprocessing=cropped(CropMode.CENTER, CropRounding.EVEN), shape=(30, 40))
    @given(preprocessing=PREPROCESSINGS, shape=SHAPES)
    def compare(preprocessing: Preprocessing, shape: tuple[int, int]) -> None:
        try:
            processor = processor_of(preprocessing, "file")
        except ArtefactError as error:
            assert f"{preprocessing.crop_mode}" in str(error)
            squashed = replace(preprocessing, crop_mode=CropMode.SQUASH)
            assert processor_of(squashed, "file")  # the hint leads there
            outcomes.add(None)
            return
        (tmp_path / "preprocessor_config.json").write_text(json.dumps(processor))
        pixels = np.random.default_rng(shape[0]).integers(0, 256, (*shape, 3), np.uint8)
        image, beside = Image.fromarray(pixels), crop_offset(preprocessing)
        lower = replace(preprocessing, crop_rounding=CropRounding.DOWN)
        assert grey_levels(lower, tmp_path, image, "pil").max() < 0.01
        ours, theirs = (
            to_pixels(to_input_size(image, how)) for how in (preprocessing, lower)
        )
        _, height, width = ours.shape
        assert any(
            np.array_equal(
                ours[:, : height - down, : width - right], theirs[:, down:, right:]
            )
            for down in range(beside + 1)
            for right in range(beside + 1)
        )
        outcomes.add(beside)

    compare()
    assert outcomes >= {None, 0, 1}


def test_the_crop_of_timm_is_served_with_a_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    spec = artefacts().pruned.spec.preprocessing
    how = replace(spec, crop_mode=CropMode.CENTER, crop_rounding=CropRounding.EVEN)
    assert processor_of(how, "vit.onnx")["do_center_crop"]
    (line,) = caplog.messages
    assert line.startswith("vit.onnx: Hugging Face's processors crop up to 1 pixel ")
    caplog.clear()
    processor_of(replace(how, crop_rounding=CropRounding.DOWN), "vit.onnx")
    assert not caplog.messages


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"crop_mode": CropMode.BORDER}, "got crop_mode border .*crop_mode=squash"),
        ({"input_size": (3, 16, 24)}, "got crop_mode center to 16 × 24"),
    ],
)
def test_what_no_processor_does_is_refused(
    changes: dict[str, Any], message: str
) -> None:
    known = replace(artefacts().pruned.spec.preprocessing, crop_mode=CropMode.CENTER)
    with pytest.raises(ArtefactError, match=message):
        processor_of(replace(known, **changes), "file")


def test_the_folder_of_a_classifier(tmp_path: Path) -> None:
    files, out = write_folder(tmp_path / "folder"), tmp_path / "hf"
    (model,) = write_huggingface(tmp_path / "folder", out).models
    assert model == out / "onnx/model.onnx"
    images = np.random.default_rng(0).standard_normal((2, 3, 4, 4)).astype(np.float32)
    with OnnxRuntimeRunner(files.pruned) as ours, OnnxRuntimeRunner(model) as theirs:
        expected = ours.run({"images": images})["logits"]
        np.testing.assert_array_equal(
            theirs.run({"pixel_values": images})["logits"], expected
        )
    config = transformers.AutoConfig.from_pretrained(out)
    spec = artefacts().pruned.spec
    assert (
        type(config).__name__ == "ViTConfig" and config.num_labels == spec.num_classes
    )
    assert (config.image_size, config.patch_size) == (4, 1)
    assert (config.hidden_size, config.num_hidden_layers) == (spec.dim, spec.depth)
    assert config.id2label[7] == "LABEL_7" and config.label2id["LABEL_7"] == 7


def test_precisions_of_one_model_share_a_folder_and_others_are_kept_out(
    tmp_path: Path,
) -> None:
    out = tmp_path / "hf"
    for name, target in (("a", ONNXRUNTIME), ("b", ONNXRUNTIME_FP16)):
        write_folder(tmp_path / name, target)
    write_huggingface(tmp_path / "a", out)
    before = (out / "onnx/model.onnx").read_bytes()
    write_huggingface(tmp_path / "b", out)
    files = sorted(path.name for path in (out / "onnx").iterdir())
    assert files == ["model.onnx", "model_fp16.onnx"]
    write_huggingface(tmp_path / "a", out)
    assert (out / "onnx/model.onnx").read_bytes() == before
    write_folder(tmp_path / "c", method=Method.A_STAR)
    with pytest.raises(OutputError, match="another model or schedule"):
        write_huggingface(tmp_path / "c", out)


def test_weights_beside_a_model_are_where_loaders_look_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """transformers.js takes the names from the config, optimum and its hub from the model's own name."""
    out = tmp_path / "hf"
    write_folder(tmp_path / "fp32")
    write_folder(tmp_path / "fp16", ONNXRUNTIME_FP16)
    write_huggingface(tmp_path / "fp16", out)
    by_user = json.loads((out / "config.json").read_text())
    by_user["transformers.js_config"]["dtype"] = "fp16"
    (out / "config.json").write_text(json.dumps(by_user))
    monkeypatch.setattr(large_onnx, "MOST_INSIDE", 0)
    monkeypatch.setattr(large_onnx, "LEAST_BYTES", 1)
    (model,) = write_huggingface(tmp_path / "fp32", out).models
    names = sorted(path.name for path in model.parent.iterdir())
    assert names == ["model.onnx", "model.onnx_data", "model_fp16.onnx"]
    for_js = json.loads((out / "config.json").read_text())["transformers.js_config"]
    assert for_js.pop("use_external_data_format") == {
        "model.onnx": 1,
        "model_fp16.onnx": 0,
    }
    assert for_js == {"dtype": "fp16"}
    weights = onnx.load(model, load_external_data=False).graph.initializer
    places = {
        entry.value
        for tensor in weights
        for entry in tensor.external_data
        if entry.key == "location"
    }
    assert places == {"model.onnx_data"}
    assert transformers.AutoConfig.from_pretrained(out).num_labels


@pytest.mark.parametrize("settings", [[1], {"use_external_data_format": 3}, "x"])
def test_a_config_of_other_settings_is_another_models(
    tmp_path: Path, settings: Any
) -> None:
    write_folder(tmp_path / "folder")
    write_huggingface(tmp_path / "folder", tmp_path / "hf")
    config = tmp_path / "hf/config.json"
    values = json.loads(config.read_text()) | {"transformers.js_config": settings}
    config.write_text(json.dumps(values))
    with pytest.raises(OutputError, match="another model or schedule"):
        write_huggingface(tmp_path / "folder", tmp_path / "hf")


def test_pixels_and_precisions_that_loaders_do_not_name_are_refused(
    tmp_path: Path,
) -> None:
    write_folder(tmp_path / "uint8", input_kind=InputKind.UINT8)
    with pytest.raises(ArtefactError, match=r"takes uint8 .*--input-kind float32"):
        write_huggingface(tmp_path / "uint8", tmp_path / "hf")
    write_folder(tmp_path / "bf16", OPENVINO_BF16)
    with pytest.raises(ArtefactError, match=r"a model in bf16 .* fp32, fp16, int8"):
        write_huggingface(tmp_path / "bf16", tmp_path / "hf")
    assert not (tmp_path / "hf").exists()


def test_the_outputs_of_a_tower_get_the_librarys_names() -> None:
    vit = with_outputs(make_vit(), ("layer:-1", "tokens", "embedding"))
    schedule = manual_schedule(
        vit.spec, {2: 0.5}, resolve(Prune("intra", method=Method.A_STAR))
    )
    artefact = Artefact(vit.spec, schedule, ONNXRUNTIME)
    outputs = _named(vit.spec, "file")
    assert config_of(artefact, outputs)["architectures"] == [
        "CLIPVisionModelWithProjection"
    ]
    names = _tensors(artefact, outputs)
    assert names["embedding"] == "image_embeds"
    assert "last_hidden_state_positions" in names.values()
    with pytest.raises(ArtefactError, match="gives grid"):
        _named(with_outputs(make_vit(), ("grid",)).spec, "file")
    assert {row.output for row in CLASSES.values()} >= {"logits", "image_embeds"}


def test_triton_alone_takes_its_settings() -> None:
    with pytest.raises(RecipeError, match=r"max_batch .* none: it is Triton's"):
        ServeSettings(loader="huggingface", max_batch=8)
