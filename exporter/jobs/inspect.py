"""Describe any file that star-export writes, from its own contents."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from exporter.core.base.artefact import KEY_PREFIX, artefact_of, metadata_of
from exporter.core.base.canonical_json import load_json, read_json, to_json
from exporter.core.base.errors import ArtefactError, reason_of
from exporter.core.base.files import PathLike
from exporter.core.base.onnx_file import load_onnx
from exporter.core.base.records import Schedule
from exporter.engines.manifest import read_manifest
from exporter.serve.export_folder import REPORT, read_models, read_reference

if TYPE_CHECKING:
    from exporter.models.identity import Identity

# Keys of the metadata whose values are JSON.
RECORDS = ("model", "schedule", "preprocessing")
REPORT_KIND = "report"
# A key that a file of JSON has → what the file is.
KINDS = {
    "keep": "schedule",
    "engine_sha256": "engine manifest",
    "parity": REPORT_KIND,
    "prune": "recipe",
}

Described = dict[str, Any]


def inspect_artefact(path: PathLike) -> Described:
    """Return a summary with the keys `kind` and `path`, and more keys by kind; of an export folder, its report.

    Raises:
        ArtefactError: The file is missing, or star-export did not write it; a file of the folder was changed.
    """
    place = Path(path)
    if place.is_dir():
        read_models(place)
        place /= REPORT
    if not place.is_file():
        raise ArtefactError(
            place, "no such file", "an artefact of star-export, or an export folder"
        )
    readers: dict[str, Callable[[Path], Described]] = {
        ".onnx": _onnx,
        ".safetensors": _safetensors,
        ".npz": _reference,
        ".json": _json,
        ".engine": _engine,
    }
    if place.suffix not in readers:
        raise ArtefactError(
            place,
            f"a {place.suffix or 'nameless'} file",
            f"one of {', '.join(readers)}",
        )
    return {"path": str(place), **readers[place.suffix](place)}


def _plain(record: object) -> Any:
    return json.loads(to_json(record))


def _onnx(path: Path) -> Described:
    from exporter.core.verify.onnxruntime_runner import OnnxRuntimeRunner  # noqa: PLC0415

    model = load_onnx(path)
    artefact_of(model, str(path))  # checks the records within
    with OnnxRuntimeRunner(path) as runner:
        tensors = {
            "inputs": [str(info) for info in runner.inputs],
            "outputs": [str(info) for info in runner.outputs],
        }
    entries = {}
    for name, value in metadata_of(model).items():
        key = name.removeprefix(KEY_PREFIX)
        entries[key] = json.loads(value) if key in RECORDS else value
    return {
        "kind": "ONNX model",
        **tensors,
        **entries,
        "size_bytes": path.stat().st_size,
    }


def _safetensors(path: Path) -> Described:
    from exporter.models.identity import read_identity  # noqa: PLC0415

    identity = read_identity(path)
    return _calibration(path) if identity is None else _checkpoint(path, identity)


def _checkpoint(path: Path, identity: "Identity") -> Described:
    """Describe weights that name their network, and what prunes them."""
    from exporter.depth.checkpoint import read_depth  # noqa: PLC0415
    from exporter.training.pruned_checkpoint import read_pruning  # noqa: PLC0415

    pruning = read_pruning(path)
    return {
        "kind": "checkpoint",
        "network": _plain(identity),
        "schedule": None if pruning is None else _plain(pruning.schedule),
        "has_calibration": pruning is not None and pruning.calibration is not None,
        "depth": _plain(read_depth(path)),
        "size_bytes": path.stat().st_size,
    }


def _calibration(path: Path) -> Described:
    from exporter.calibration.record import load_calibration  # noqa: PLC0415

    calibration = load_calibration(path)
    return {
        "kind": "calibration",
        "acs": calibration.acs.tolist(),
        "has_relevance": calibration.inter is not None,
        "overlap": calibration.overlap_by_layer,
        **_plain(calibration.record),
    }


def _reference(path: Path) -> Described:
    shapes = {
        name: f"{array.dtype}{list(array.shape)}"
        for name, array in read_reference(path).items()
    }
    return {"kind": "reference", "arrays": shapes}


def _engine(path: Path) -> Described:
    """Describe an engine by its manifest: only the machine that built it can load the engine itself."""
    return {
        "kind": "engine",
        **_plain(read_manifest(path)),
        "size_bytes": path.stat().st_size,
    }


def _json(path: Path) -> Described:
    expected = "a schedule, a recipe or a report"
    try:
        content = read_json(path)
    except (OSError, ValueError) as error:
        raise ArtefactError(path, reason_of(error), expected) from None
    if not isinstance(content, dict):
        raise ArtefactError(path, f"a JSON {type(content).__name__}", expected)
    for key, kind in KINDS.items():
        if key in content:
            if kind == "schedule":
                load_json(Schedule, path)
            return {"kind": kind, **content}
    raise ArtefactError(path, f"keys {', '.join(list(content)[:4])}", expected)
