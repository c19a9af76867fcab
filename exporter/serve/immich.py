"""Write the vision half of a CLIP model for Immich, whose text half stays the model's own.

Immich keeps a model in `clip/<name>/`, with a folder for each half. Its loader feeds `image` and takes the first
output.
"""

from pathlib import Path
from typing import Any

from exporter.core.base.canonical_json import save_json
from exporter.core.base.errors import ArtefactError
from exporter.core.base.files import folder_beside
from exporter.core.base.large_onnx import load_whole, save_onnx
from exporter.core.base.onnx_file import rename_tensors
from exporter.core.base.records import Preprocessing
from exporter.core.base.tensor_names import IMAGES
from exporter.core.base.vocabulary import CropMode, CropRounding, OutputKind
from exporter.serve.huggingface import require_floats
from exporter.serve.loaders import Served, read_for

PLACE = "visual"
INPUT = "image"


def write_immich(folder: Path, out: Path) -> Served:
    """Write `visual` with the model and `preprocess_cfg.json` to the folder of a model, whose other half stays."""
    pruned = read_for(folder, out).models.pruned
    artefact, source = pruned.artefact, str(pruned.path)
    require_floats(artefact, source)
    first = artefact.spec.outputs[0]
    if first.kind != OutputKind.EMBEDDING:
        hint = "compile a CLIP tower, with --outputs embedding"
        raise ArtefactError(source, f"{first.kind} first", "an embedding", hint)
    settings = preprocess_of(artefact.spec.preprocessing, source)
    model = load_whole(pruned.path)
    rename_tensors(model, {IMAGES: INPUT})
    with folder_beside(out) as aside:
        place = aside / PLACE
        place.mkdir()
        save_onnx(model, place / "model.onnx")
        save_json(settings, place / "preprocess_cfg.json")
    return Served((out / PLACE / "model.onnx",))


def preprocess_of(preprocessing: Preprocessing, source: str) -> dict[str, Any]:
    """Return Immich's settings of a preprocessing: it resizes to the square that the model takes.

    Raises:
        ArtefactError: It fits images otherwise.
    """
    _, height, width = preprocessing.input_size
    mode, rounding = preprocessing.crop_mode, preprocessing.crop_rounding
    is_known = mode == CropMode.SQUASH or (
        mode == CropMode.CENTER and rounding == CropRounding.DOWN
    )
    if not is_known or height != width or preprocessing.crop_pct != 1:
        expected = (
            "a square of the input's size: squash, or center with crop_rounding down"
        )
        hint = f"compile with --set model.preprocess.crop_rounding={CropRounding.DOWN}"
        raise ArtefactError(
            source, f"{preprocessing.words}, {rounding}", expected, hint
        )
    return {
        "size": [height, width],
        "mode": "RGB",
        "mean": preprocessing.mean,
        "std": preprocessing.std,
        "interpolation": str(preprocessing.interpolation),
        "resize_mode": "squash" if mode == CropMode.SQUASH else "shortest",
        "fill_color": 0,
    }
