"""Export folders that were changed: a file lost, torn or swapped, its checksum forgotten, or made to fit."""

import json
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from exporter.serve.export_folder import (
    CHECKSUMS,
    MODEL,
    REFERENCE,
    REPORT,
    SCHEDULE,
    save_checksums,
)
from tests.hostile import flags
from tests.hostile.inputs import Hostile, Place

VERBS = (
    "check {work}/x",
    "bench {work}/x --rounds 5 --batches 1",
    "eval {work}/x --images {images}",
    "serve-config {work}/x --out {work}/triton",
    "build {work}/x",
    "inspect {work}/x",
)
Change = Callable[[Path], object]


def copied(place: Place) -> Path:
    return shutil.copytree(place.folder, place.work / "x")


def _changed(change: Change, place: Place) -> None:
    """A copy that was changed, with the checksums of before."""
    change(copied(place))


def _forged(change: Change, place: Place) -> None:
    """A copy that was changed, with checksums that fit."""
    folder = copied(place)
    names = [
        line.split("  ", 1)[1] for line in (folder / CHECKSUMS).read_text().splitlines()
    ]
    change(folder)
    save_checksums(folder, [name for name in names if (folder / name).exists()])


def pruned_in(folder: Path) -> Path:
    return next(
        path for path in folder.glob("*.star.*.onnx") if path.name.count(".") == 3
    )


def _dense(folder: Path) -> Path:
    return next(folder.glob("*.dense.*.onnx"))


def _tear(name: str, folder: Path) -> None:
    path = pruned_in(folder) if name == "pruned" else folder / name
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _flip(name: str, folder: Path) -> None:
    path = pruned_in(folder) if name == "pruned" else folder / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


def _drop(name: str, folder: Path) -> None:
    (pruned_in(folder) if name == "pruned" else folder / name).unlink()


def _sums(content: str, folder: Path) -> None:
    (folder / CHECKSUMS).write_text(content)


def _one_line(folder: Path) -> None:
    lines = (folder / CHECKSUMS).read_text().splitlines()
    _sums(next(line for line in lines if line.endswith(REPORT)) + "\n", folder)


def _set(name: str, key: str, value: Any, folder: Path) -> None:
    content = json.loads((folder / name).read_text())
    content[key] = value
    (folder / name).write_text(json.dumps(content))


def _swap(folder: Path) -> None:
    dense, pruned = _dense(folder), pruned_in(folder)
    aside = folder / "aside"
    dense.rename(aside)
    pruned.rename(dense)
    aside.rename(pruned)


def _twice(folder: Path) -> None:
    shutil.copyfile(pruned_in(folder), _dense(folder))


def _other_file(role: str, name: str, folder: Path) -> None:
    files = json.loads((folder / REPORT).read_text())["files"]
    _set(REPORT, "files", {**files, role: name}, folder)


def _variant_as_pruned(folder: Path) -> None:
    _other_file("pruned", next(folder.glob("*.tracing.onnx")).name, folder)


def _metadata(key: str, value: str | None, folder: Path) -> None:
    _metadata_of(pruned_in(folder), key, value)


def _metadata_of(path: Path, key: str, value: str | None) -> None:
    model = onnx.load(path)
    kept = [
        (entry.key, entry.value)
        for entry in model.metadata_props
        if entry.key != f"star_export.{key}"
    ]
    del model.metadata_props[:]
    for name, text in [
        *kept,
        *([] if value is None else [(f"star_export.{key}", value)]),
    ]:
        model.metadata_props.add(key=name, value=text)
    onnx.save(model, path)


def _target_everywhere(target: str, folder: Path) -> None:
    """The target in the metadata of every model, and in the report."""
    for path in folder.glob("*.onnx"):
        _metadata_of(path, "target", target)
    _set(REPORT, "target", target, folder)


def _claims(key: str, value: str, place: Place) -> None:
    """A file whose metadata has another value."""
    path = place.work / "m.onnx"
    shutil.copyfile(place.pruned, path)
    _metadata_of(path, key, value)


def _claims_crop(place: Place) -> None:
    """A file whose metadata has another preprocessing, in both places."""
    _claims("wings", "2", place)
    path = place.work / "m.onnx"
    told = {entry.key: entry.value for entry in onnx.load(path).metadata_props}
    model = json.loads(told["star_export.model"])
    model["preprocessing"]["mean"] = [0.1, 0.2, 0.3]
    _metadata_of(path, "model", json.dumps(model))
    _metadata_of(path, "preprocessing", json.dumps(model["preprocessing"]))


def _variant(role: str, place: Place) -> None:
    shutil.copyfile(place.pruned, place.work / f"m.{role}.onnx")


def _noise(folder: Path) -> None:
    """Weights that are not the model's, under its name."""
    path = pruned_in(folder)
    model = onnx.load(path)
    for tensor in model.graph.initializer:
        values = onnx.numpy_helper.to_array(tensor)
        if values.dtype == np.float32 and values.size > 1000:
            noise = (
                np.random.default_rng(0).normal(0, 0.2, values.shape).astype(np.float32)
            )
            tensor.CopyFrom(onnx.numpy_helper.from_array(noise, tensor.name))
    onnx.save(model, path)


def _arrays(change: Callable[[dict[str, Any]], dict[str, Any]], folder: Path) -> None:
    with np.load(folder / REFERENCE) as arrays:
        content = change(dict(arrays))
    with (folder / REFERENCE).open("wb") as file:
        np.savez(file, **content)


def _each(name: str, change: Callable[[Any], Any]) -> Change:
    """A change of every array of the reference with this in its name."""
    return partial(
        _arrays,
        lambda all_: {
            key: change(value) if name in key else value for key, value in all_.items()
        },
    )


def _without(name: str) -> Change:
    return partial(
        _arrays,
        lambda all_: {key: value for key, value in all_.items() if name not in key},
    )


def _first(value: float) -> Callable[[Any], Any]:
    """A change of the first number of an array."""
    return lambda array: np.where(
        np.arange(array.size).reshape(array.shape) == 0, value, array
    ).astype(array.dtype)


# Whatever the change, every verb that reads the folder refuses it.
CHANGED: dict[str, tuple[Change, str]] = {
    **{
        f"{name} torn": (partial(_tear, name), "sha256")
        for name in ("pruned", REFERENCE, REPORT, SCHEDULE)
    },
    **{
        f"{name} flipped": (partial(_flip, name), " of SHA256SUMS | copy it again")
        for name in ("pruned", REFERENCE, MODEL)
    },
    **{
        f"{name} lost": (partial(_drop, name), "no ")
        for name in ("pruned", REFERENCE, REPORT, SCHEDULE)
    },
    "swapped": (_swap, "sha256"),
    "no sums": (partial(_drop, CHECKSUMS), CHECKSUMS),
    "empty sums": (partial(_sums, ""), CHECKSUMS),
    "sums of one file": (_one_line, CHECKSUMS),
    "sums that are none": (partial(_sums, "x\ny\n"), CHECKSUMS),
    "a sum of a long path": (
        partial(_sums, f"{'0' * 64}  {'x/' * 2040}x\n"),
        CHECKSUMS,
    ),
    "a sum elsewhere": (partial(_sums, f"{'0' * 64}  ../../etc/passwd\n"), CHECKSUMS),
}
# With checksums that fit, the files themselves say that they are wrong.
FORGED: dict[str, tuple[Change, str]] = {
    "swapped, with sums that fit": (_swap, "x"),
    "the same model twice": (_twice, "x"),
    "a variant as the model": (_variant_as_pruned, "x"),
    "a file elsewhere": (partial(_other_file, "pruned", "../../etc/passwd"), "passwd"),
    "files that are none": (partial(_set, REPORT, "files", 7), "x"),
    "no files": (partial(_set, REPORT, "files", {}), "x"),
    "no target": (partial(_metadata, "target", None), "make it again"),
    "a target of nobody": (partial(_metadata, "target", "abacus"), "abacus"),
    "a schedule that is none": (partial(_metadata, "schedule", "{"), "x"),
    "a deep schedule": (partial(_metadata, "schedule", "[" * 100_000), "x"),
    "a schedule of one layer": (partial(_metadata, "schedule", '{"keep": [1]}'), "x"),
    "a target in INT8": (
        partial(_target_everywhere, "onnxruntime-int8"),
        "weights in fp32",
    ),
    "an input of another kind": (partial(_metadata, "input_kind", "int4"), "int4"),
    "a layout of nobody": (partial(_metadata, "layout", "folded"), "folded"),
    "a model that is none": (partial(_metadata, "model", "null"), "x"),
}
# A reference that lacks something must not pass: comparing less than all of it would.
REFERENCES: dict[str, tuple[Change, str]] = {
    "no images": (_without("images"), "make it again"),
    "images of objects": (
        _each("images", lambda images: images.astype(object)),
        "make it again",
    ),
    "no logits": (_without("logits"), "logits"),
    "no scores": (_without("score"), "score_"),
    "no kept sets": (_without("keep"), "decisions of the layers []"),
    "infinite logits": (_each("dense_logits", _first(-np.inf)), "infinite"),
}


# Targets of the same precision, and what tells that the file is for none of them.
CLAIMED = {
    "onnxruntime-opset17-fp32": "opset 23",
    "openvino-fp32": "an unsorted TopK",
    "tensorrt-fp32": "opset 23",
}


def _folders() -> Iterator[Hostile]:
    """Each change with one verb, and two of them, one a kind, with every verb."""
    for prepare, changes, everywhere in (
        (_changed, CHANGED, "pruned torn"),
        (_forged, FORGED, "no files"),
        (_forged, REFERENCES, ""),
    ):
        for name, (change, says) in changes.items():
            for line in VERBS if name == everywhere else VERBS[:1]:
                yield Hostile(line, says, prepare=partial(prepare, change), name=name)
    yield Hostile(VERBS[0], "FAILED", 1, partial(_forged, _noise), "other weights")
    # A hash that looks like JSON.
    brace = partial(_claims, "weights_sha256", "{0}")
    yield Hostile("inspect {work}/m.onnx", "weights sha256: {0}", 0, brace, "a brace")
    for line in (
        f"check --onnx {{work}}/m.onnx {flags.MODEL} --images {{images}}",
        "inspect {work}/m.onnx",
    ):
        # A file of fp32 that asks for the tolerance of INT8.
        int8 = partial(_claims, "target", "onnxruntime-int8")
        yield Hostile(line, "weights in fp32", prepare=int8, name="a target of INT8")
    check = f"check --onnx {{work}}/m.onnx {flags.MODEL} --images {{images}}"
    for target, says in CLAIMED.items():
        yield Hostile(
            check,
            says,
            prepare=partial(_claims, "target", target),
            name=f"a target {target}",
        )
    yield Hostile(
        check,
        "uint8",
        prepare=partial(_claims, "input_kind", "uint8"),
        name="an input of uint8",
    )
    yield Hostile(
        check, "another preprocessing", prepare=_claims_crop, name="another mean"
    )
    for role in ("tracing", "forced", "sliced"):
        line = f"bench --dense {{dense}} --pruned {{work}}/m.{role}.onnx"
        yield Hostile(
            line,
            "a variant",
            prepare=partial(_variant, role),
            name=f"the {role} variant",
        )


FOLDERS = tuple(_folders())
