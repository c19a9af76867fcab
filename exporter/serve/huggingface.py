"""Write a model as a folder that Hugging Face's loaders open, transformers.js and optimum among them.

They take tensors by the library's names, and the images by its processor: that it crops a pixel beside the model is
said, and what it cannot do is refused.
"""

import logging
from dataclasses import dataclass
from math import floor
from pathlib import Path
from typing import Any

from exporter.core.base.artefact import KEY_PREFIX, Artefact, to_metadata
from exporter.core.base.canonical_json import read_json, save_json, to_json
from exporter.core.base.errors import ArtefactError, OutputError
from exporter.core.base.files import folder_beside
from exporter.core.base.large_onnx import data_path, load_whole, save_onnx
from exporter.core.base.onnx_file import rename_tensors
from exporter.core.base.outputs import tensors_of
from exporter.core.base.records import ModelSpec, Output, Preprocessing
from exporter.core.base.tensor_names import IMAGES
from exporter.core.base.vocabulary import (
    PROBLEM_TYPES,
    CropMode,
    CropRounding,
    InputKind,
    OutputKind,
    Precision,
)
from exporter.serve.loaders import Served, read_for

logger = logging.getLogger(__name__)

CONFIG, PROCESSOR = "config.json", "preprocessor_config.json"
PIXELS = "pixel_values"
# The file that a loader takes for its `dtype`: fp32, fp16, q8.
FILES = {
    Precision.FP32: "onnx/model.onnx",
    Precision.FP16: "onnx/model_fp16.onnx",
    Precision.INT8: "onnx/model_quantized.onnx",
}
# What the name of a model above 2 GB ends in for its weights; and by which setting transformers.js knows how many
# files with weights each model has.
WEIGHTS = "_data"
JS_CONFIG, EXTERNAL = "transformers.js_config", "use_external_data_format"
# By which models and schedules are told apart.
TOLD_APART = ("method", "schedule_sha256", "weights_sha256")


@dataclass(frozen=True)
class LibraryClass:
    """What the library opens a model as that gives an output: its type, its class, the name of the output."""

    model_type: str
    architecture: str
    output: str


# A model that gives several is opened as the first of these.
CLASSES = {
    **{
        head: LibraryClass("vit", "ViTForImageClassification", "logits")
        for head in PROBLEM_TYPES
    },
    OutputKind.EMBEDDING: LibraryClass(
        "clip_vision_model", "CLIPVisionModelWithProjection", "image_embeds"
    ),
    OutputKind.TOKENS: LibraryClass("vit", "ViTModel", "last_hidden_state"),
}


def write_huggingface(folder: Path, out: Path) -> Served:
    """Write the pruned model of an export folder, its config and that of its processor to `out`.

    What another export folder of the same model and schedule left there in another precision stays.
    """
    return Served((write_model(read_for(folder, out).pruned, out),))


def write_model(lowered: Artefact, out: Path) -> Path:
    """Write a model as `write_huggingface` does; return its file."""
    source = str(lowered.path)
    require_floats(lowered, source)
    if lowered.target.precision not in FILES:
        expected = f"one in {', '.join(FILES)}, which its loaders name"
        raise ArtefactError(source, f"a model in {lowered.target.precision}", expected)
    outputs = _named(lowered.spec, source)
    config = config_of(lowered, outputs)
    processor = processor_of(lowered.spec.preprocessing, source)
    for_js = _js_config(out / CONFIG, config)
    model = load_whole(lowered.path)
    rename_tensors(model, _tensors(lowered, outputs))
    name = FILES[lowered.target.precision]
    with folder_beside(out) as aside:
        file = aside / name
        file.parent.mkdir()
        save_onnx(model, file, WEIGHTS)
        for_js[EXTERNAL][file.name] = int(data_path(file, WEIGHTS).is_file())
        save_json(config | {JS_CONFIG: for_js}, aside / CONFIG)
        save_json(processor, aside / PROCESSOR)
    return out / name


def require_floats(artefact: Artefact, source: str) -> None:
    """Raise ArtefactError for a model that takes pixels, which these loaders give to none."""
    if artefact.input_kind != InputKind.FLOAT32:
        hint = f"compile with --input-kind {InputKind.FLOAT32}"
        got = f"a model that takes {artefact.input_kind}"
        raise ArtefactError(source, got, "one that takes normalised images", hint)


def _named(spec: ModelSpec, source: str) -> dict[OutputKind, Output]:
    """Return the first output of each kind that the library has a name for, in the order of CLASSES."""
    named: dict[OutputKind, Output] = {}
    for kind in CLASSES:
        for output in reversed(spec.outputs):
            if output.kind == kind:
                named[kind] = output
    if not named:
        got = f"a model that gives {', '.join(output.name for output in spec.outputs)}"
        raise ArtefactError(source, got, f"one that gives {', '.join(CLASSES)}")
    return named


def _tensors(artefact: Artefact, outputs: dict[OutputKind, Output]) -> dict[str, str]:
    """Return the library's names of the tensors that the model takes and gives."""
    names = {IMAGES: PIXELS}
    for kind, output in outputs.items():
        for tensor in tensors_of(output, counted=artefact.schedule.adaptive):
            names[tensor] = CLASSES[kind].output + tensor.removeprefix(output.name)
    return names


def _js_config(place: Path, config: dict[str, Any]) -> dict[str, Any]:
    """Return what the config of a folder tells transformers.js, where there is one, with a table of its files.

    Raises:
        OutputError: The folder holds another model, whose files would be opened by this one's config.
    """
    if not place.is_file():
        return {EXTERNAL: {}}
    try:
        known = read_json(place)
        for_js = dict(known.pop(JS_CONFIG, {}))
        for_js[EXTERNAL] = dict(for_js.get(EXTERNAL, {}))
        is_same = to_json(known) == to_json(config)
    except (OSError, ValueError, TypeError, AttributeError):
        is_same = False
    if not is_same:
        got, hint = "another model or schedule", "remove it, or write to another folder"
        raise OutputError(place, got, "the same, in any precision", hint)
    return for_js


def config_of(artefact: Artefact, outputs: dict[OutputKind, Output]) -> dict[str, Any]:
    """Return the library's config; its `star_export` tells models and schedules apart."""
    spec, metadata = artefact.spec, to_metadata(artefact)
    _, height, width = spec.preprocessing.input_size
    rows, columns = spec.grid
    opened = CLASSES[next(iter(outputs))]
    names = spec.class_names or tuple(
        f"LABEL_{index}" for index in range(spec.head_channels)
    )
    problem = {"problem_type": PROBLEM_TYPES[spec.head.kind]} if spec.head else {}
    return {
        "model_type": opened.model_type,
        "architectures": [opened.architecture],
        "image_size": _side(height, width),
        "patch_size": _side(height // rows, width // columns),
        "num_channels": 3,
        "hidden_size": spec.dim,
        "num_hidden_layers": spec.depth,
        "num_attention_heads": spec.num_heads,
        "id2label": {str(index): name for index, name in enumerate(names)},
        "label2id": {name: index for index, name in enumerate(names)},
        **problem,
        "star_export": {key: metadata[KEY_PREFIX + key] for key in TOLD_APART},
    }


def _side(height: int, width: int) -> int | list[int]:
    return height if height == width else [height, width]


def processor_of(preprocessing: Preprocessing, source: str) -> dict[str, Any]:
    """Return the settings of the library's processor that comes nearest; those of CLIP take all there are.

    It makes the very pixels, unless a line says that it crops beside the model.

    Raises:
        ArtefactError: It fits images otherwise.
    """
    from PIL import Image  # noqa: PLC0415  (`--help` opens no image)

    _, height, width = preprocessing.input_size
    scaled, mode = preprocessing.scaled, preprocessing.crop_mode
    _check_crop(preprocessing, source)
    if beside := crop_offset(preprocessing):
        text = "%s: Hugging Face's processors crop up to %d pixel further left and up than the model does"
        logger.warning(text, source, beside)
    size = {"height": scaled[0], "width": scaled[1]}
    return {
        "image_processor_type": "CLIPImageProcessor",
        "do_convert_rgb": True,
        "do_resize": mode != CropMode.NONE,
        "size": {"shortest_edge": scaled[0]} if mode == CropMode.CENTER else size,
        "resample": int(Image.Resampling[preprocessing.interpolation.name]),
        "do_center_crop": mode != CropMode.SQUASH or scaled != (height, width),
        "crop_size": {"height": height, "width": width},
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": preprocessing.mean,
        "image_std": preprocessing.std,
    }


def _check_crop(preprocessing: Preprocessing, source: str) -> None:
    """Raise ArtefactError where the library's processors fit an image otherwise."""
    mode, (_, height, width) = preprocessing.crop_mode, preprocessing.input_size
    is_oblong = mode == CropMode.CENTER and height != width
    if mode == CropMode.BORDER or is_oblong:
        got = f"crop_mode {mode} to {height} × {width} pixels"
        hint = f"compile with --set model.preprocess.crop_mode={CropMode.SQUASH}"
        raise ArtefactError(source, got, "what Hugging Face's processors do", hint)


def crop_offset(preprocessing: Preprocessing) -> int:
    """Return how many pixels the library's crop may lie before the model's: it starts at the lower pixel.

    Of an odd number of pixels that are cut, half a pixel is rounded. Their number depends on the image, unless that
    is squashed.
    """
    if preprocessing.crop_rounding == CropRounding.DOWN:
        return 0
    if preprocessing.crop_mode != CropMode.SQUASH:
        return 1
    _, *sides = preprocessing.input_size
    cut = [
        scaled - side for scaled, side in zip(preprocessing.scaled, sides, strict=True)
    ]
    return max(round(pixels / 2) - floor(pixels / 2) for pixels in cut)
