"""Export folders that were changed: the sums say so; where they fit, no code runs and nothing passes unjudged."""

import json
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from exporter.serve.export_folder import CHECKSUMS, REFERENCE, REPORT, save_checksums
from tests.hostile.flags import MODEL
from tests.hostile.inputs import Hostile, Place

CHECK = "check {work}/x"
Change = Callable[[Path], object]


def copied(place: Place) -> Path:
    return shutil.copytree(place.folder, place.work / "x")


def _changed(change: Change, place: Place) -> None:
    change(copied(place))


def _forged(change: Change, place: Place) -> None:
    """A copy that was changed, with checksums that fit."""
    folder = copied(place)
    lines = (folder / CHECKSUMS).read_text().splitlines()
    change(folder)
    save_checksums(folder, [line.split("  ", 1)[1] for line in lines])


def _tear(folder: Path) -> None:
    path = next(folder.glob("*.star.*.onnx"))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _drop(name: str, folder: Path) -> None:
    (folder / name).unlink()


def _list_elsewhere(folder: Path) -> None:
    (folder / CHECKSUMS).write_text(f"{'0' * 64}  ../../etc/passwd\n")


def _set_in_report(key: str, value: Any, folder: Path) -> None:
    report = json.loads((folder / REPORT).read_text())
    report[key] = value
    (folder / REPORT).write_text(json.dumps(report))


def _set_metadata(key: str, value: str, path: Path) -> None:
    model = onnx.load(path)
    (entry,) = (e for e in model.metadata_props if e.key == f"star_export.{key}")
    entry.value = value
    onnx.save(model, path)


def _for_int8(folder: Path) -> None:
    """The target in the metadata of every model, and in the report."""
    for path in folder.glob("*.onnx"):
        _set_metadata("target", "onnxruntime-int8", path)
    _set_in_report("target", "onnxruntime-int8", folder)


def _pickle(folder: Path) -> None:
    with np.load(folder / REFERENCE) as arrays:
        content = {name: arrays[name].astype(object) for name in arrays}
    np.savez(folder / REFERENCE, **content)


CHANGED: dict[str, tuple[Change, str]] = {
    "torn": (_tear, "sha256"),
    "lost": (partial(_drop, REFERENCE), "no "),
    "no sums": (partial(_drop, CHECKSUMS), CHECKSUMS),
    "a sum elsewhere": (_list_elsewhere, "a file outside the folder"),
}
FORGED: dict[str, tuple[Change, str]] = {
    "a file elsewhere": (
        partial(
            _set_in_report,
            "files",
            dict.fromkeys(("dense", "pruned"), "../../etc/passwd"),
        ),
        "passwd",
    ),
    "fp32 for the tolerance of INT8": (_for_int8, "weights in fp32"),
    "a pickle": (_pickle, "make it again"),
}


def _another_mean(place: Place) -> None:
    """Another preprocessing, in both places of a file beside no folder."""
    path = shutil.copyfile(place.pruned, place.work / "m.onnx")
    metadata = {e.key: e.value for e in onnx.load(path).metadata_props}
    model = json.loads(metadata["star_export.model"])
    model["preprocessing"]["mean"] = [0.1, 0.2, 0.3]
    _set_metadata("model", json.dumps(model), path)
    _set_metadata("preprocessing", json.dumps(model["preprocessing"]), path)


def _variant(place: Place) -> None:
    shutil.copyfile(place.pruned, place.work / "m.tracing.onnx")


def _folders() -> Iterator[Hostile]:
    for name, (change, says) in CHANGED.items():
        yield Hostile(CHECK, says, prepare=partial(_changed, change), name=name)
    for name, (change, says) in FORGED.items():
        yield Hostile(CHECK, says, prepare=partial(_forged, change), name=name)
    check = f"check --onnx {{work}}/m.onnx {MODEL} --images {{images}}"
    yield Hostile(check, "another preprocessing", prepare=_another_mean)
    bench = "bench --dense {dense} --pruned {work}/m.tracing.onnx"
    yield Hostile(bench, "a variant", prepare=_variant)


FOLDERS = tuple(_folders())
