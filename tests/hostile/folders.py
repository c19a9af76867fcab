"""Export folders that were changed: a file lost, torn or swapped, its checksum forgotten, or made to fit."""

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

VERBS = (
    "check {work}/x",
    "bench {work}/x --rounds 5 --batches 1",
    "eval {work}/x --images {images}",
    "serve-config {work}/x --out {work}/triton",
    "build {work}/x",
    "inspect {work}/x",
)
CHECK_FILE = f"check --onnx {{work}}/m.onnx {MODEL} --images {{images}}"
Change = Callable[[Path], object]


def copied(place: Place) -> Path:
    return shutil.copytree(place.folder, place.work / "x")


def _forged(change: Change, place: Place) -> None:
    """A copy that was changed, with checksums that fit."""
    folder = copied(place)
    lines = (folder / CHECKSUMS).read_text().splitlines()
    change(folder)
    names = [line.split("  ", 1)[1] for line in lines]
    save_checksums(folder, [name for name in names if (folder / name).exists()])


def _pruned(folder: Path) -> Path:
    """The model, and none of its variants."""
    models = folder.glob("*.star.*.onnx")
    return next(path for path in models if path.name.count(".") == 3)


def _dense(folder: Path) -> Path:
    return next(folder.glob("*.dense.*.onnx"))


def _tear(folder: Path) -> None:
    path = _pruned(folder)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _flip(folder: Path) -> None:
    content = bytearray(_pruned(folder).read_bytes())
    content[len(content) // 2] ^= 1
    _pruned(folder).write_bytes(bytes(content))


def _drop(name: str, folder: Path) -> None:
    (folder / name).unlink()


def _sums(content: str, folder: Path) -> None:
    (folder / CHECKSUMS).write_text(content)


def _one_sum(folder: Path) -> None:
    lines = (folder / CHECKSUMS).read_text().splitlines()
    _sums(next(line for line in lines if line.endswith(REPORT)) + "\n", folder)


def _twice(folder: Path) -> None:
    shutil.copyfile(_pruned(folder), _dense(folder))


def _set_in_report(key: str, value: Any, folder: Path) -> None:
    report = json.loads((folder / REPORT).read_text())
    report[key] = value
    (folder / REPORT).write_text(json.dumps(report))


def _elsewhere(folder: Path) -> None:
    files = json.loads((folder / REPORT).read_text())["files"]
    _set_in_report("files", {**files, "pruned": "../../etc/passwd"}, folder)


def _metadata(key: str, value: str | None, path: Path) -> None:
    """Give a model other metadata, or none of this key."""
    model, own = onnx.load(path), f"star_export.{key}"
    others = [(e.key, e.value) for e in model.metadata_props if e.key != own]
    del model.metadata_props[:]
    for name, text in others if value is None else [*others, (own, value)]:
        model.metadata_props.add(key=name, value=text)
    onnx.save(model, path)


def _of_pruned(key: str, value: str | None) -> Change:
    return lambda folder: _metadata(key, value, _pruned(folder))


def _for_int8(folder: Path) -> None:
    """The target in the metadata of every model, and in the report."""
    for path in folder.glob("*.onnx"):
        _metadata("target", "onnxruntime-int8", path)
    _set_in_report("target", "onnxruntime-int8", folder)


def _noise(folder: Path) -> None:
    """Weights that are not the model's, under its name."""
    model, rng = onnx.load(_pruned(folder)), np.random.default_rng(0)
    for tensor in model.graph.initializer:
        values = onnx.numpy_helper.to_array(tensor)
        if values.dtype == np.float32 and values.size > 1000:
            noise = rng.normal(0, 0.2, values.shape).astype(np.float32)
            tensor.CopyFrom(onnx.numpy_helper.from_array(noise, tensor.name))
    onnx.save(model, _pruned(folder))


Arrays = dict[str, Any]


def _reference(change: Callable[[Arrays], Arrays]) -> Change:
    def run(folder: Path) -> None:
        with np.load(folder / REFERENCE) as arrays:
            content = change(dict(arrays))
        with (folder / REFERENCE).open("wb") as file:
            np.savez(file, **content)

    return run


def _without(part: str) -> Change:
    return _reference(
        lambda arrays: {name: v for name, v in arrays.items() if part not in name}
    )


def _objects(arrays: Arrays) -> Arrays:
    return {**arrays, "images": arrays["images"].astype(object)}


def _infinite(arrays: Arrays) -> Arrays:
    arrays["dense_logits"][0, 0] = -np.inf
    return arrays


# The checksums of before: a sum says that something was changed.
CHANGED: dict[str, tuple[Change, str]] = {
    "torn": (_tear, "sha256"),
    "flipped": (_flip, " of SHA256SUMS | copy it again"),
    "lost": (partial(_drop, REFERENCE), "no "),
    "no sums": (partial(_drop, CHECKSUMS), CHECKSUMS),
    "sums of one file": (_one_sum, CHECKSUMS),
    "sums that are none": (partial(_sums, "x\ny\n"), CHECKSUMS),
    "a sum of a long path": (
        partial(_sums, f"{'0' * 64}  {'x/' * 2040}x\n"),
        CHECKSUMS,
    ),
    "a sum elsewhere": (
        partial(_sums, f"{'0' * 64}  ../../etc/passwd\n"),
        "a file outside the folder",
    ),
}
# With checksums that fit, the files themselves say that they are wrong. A reference that lacks something must not
# pass: comparing less than all of it would.
FORGED: dict[str, tuple[Change, str]] = {
    "the same model twice": (_twice, "x"),
    "a file elsewhere": (_elsewhere, "passwd"),
    "no files": (partial(_set_in_report, "files", {}), "x"),
    "no target": (_of_pruned("target", None), "make it again"),
    "a target of nobody": (_of_pruned("target", "abacus"), "abacus"),
    "a deep schedule": (_of_pruned("schedule", "[" * 100_000), "x"),
    "fp32 for the tolerance of INT8": (_for_int8, "weights in fp32"),
    "images of objects": (_reference(_objects), "make it again"),
    "no logits": (_without("logits"), "logits"),
    "no scores": (_without("score"), "score_"),
    "no kept sets": (_without("keep"), "decisions of the layers []"),
    "infinite logits": (_reference(_infinite), "infinite"),
}


def _claims(key: str, value: str, place: Place) -> None:
    """A file beside no folder whose metadata has another value."""
    shutil.copyfile(place.pruned, place.work / "m.onnx")
    _metadata(key, value, place.work / "m.onnx")


def _another_mean(place: Place) -> None:
    """Another preprocessing, in both places."""
    metadata = {e.key: e.value for e in onnx.load(place.pruned).metadata_props}
    model = json.loads(metadata["star_export.model"])
    model["preprocessing"]["mean"] = [0.1, 0.2, 0.3]
    _claims("model", json.dumps(model), place)
    told = json.dumps(model["preprocessing"])
    _metadata("preprocessing", told, place.work / "m.onnx")


def _variant(place: Place) -> None:
    shutil.copyfile(place.pruned, place.work / "m.tracing.onnx")


def _folders() -> Iterator[Hostile]:
    """Each change with one verb, and one of them with every verb."""
    for name, (change, says) in CHANGED.items():

        def changed(place: Place, change: Change = change) -> None:
            change(copied(place))

        for line in VERBS if name == "torn" else VERBS[:1]:
            yield Hostile(line, says, prepare=changed, name=name)
    for name, (change, says) in FORGED.items():
        yield Hostile(VERBS[0], says, prepare=partial(_forged, change), name=name)
    yield Hostile(VERBS[0], "FAILED", 1, partial(_forged, _noise), "other weights")
    # A hash that looks like a field of a format.
    brace = partial(_claims, "weights_sha256", "{0}")
    yield Hostile("inspect {work}/m.onnx", "weights sha256: {0}", 0, brace, "a brace")
    for key, value, says in (
        ("target", "tensorrt-fp32", "opset 23"),
        ("target", "openvino-fp32", "an unsorted TopK"),
        ("input_kind", "uint8", "uint8"),
    ):
        claims = partial(_claims, key, value)
        yield Hostile(CHECK_FILE, says, prepare=claims, name=f"{key} {value}")
    yield Hostile(CHECK_FILE, "another preprocessing", prepare=_another_mean)
    bench = "bench --dense {dense} --pruned {work}/m.tracing.onnx"
    yield Hostile(bench, "a variant", prepare=_variant)


FOLDERS = tuple(_folders())
