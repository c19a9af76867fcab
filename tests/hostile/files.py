"""Files that are not what they should be: each cause where one command reads it, a pipe wherever one is opened."""

import os
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from tests.hostile.flags import CALIBRATE, COMPILE, EVAL
from tests.hostile.inputs import (
    Hostile,
    Place,
    Prepare,
    bytes_at,
    folder_at,
    text_at,
)

PLAN = "plan --model vit_tiny_patch16_224"
BAD = "{work}/bad"

# Commands that read JSON, TOML, tensors, ONNX and arrays from `{work}/bad`.
SCHEDULE = f"{PLAN} --schedule {BAD}"
ACS = f"{PLAN} --method star --rho 0.5 --acs {BAD}"
CLASS_MAP = f"{EVAL} --class-map {BAD}"
SAMPLES = f"depth choose --model vit_tiny_patch16_224 --samples {BAD} --units 4"
TOML = f"compile --out {{work}}/out --recipe {BAD}"
ONNX = f"bench --dense {BAD} --pruned {BAD}"
ARRAYS = f"bench --dense {{dense}} --pruned {{pruned}} --reference {BAD}"
READERS = (SCHEDULE, TOML, f"{COMPILE} --calibration {BAD}", ONNX, ARRAYS)
CHECKPOINT = f"{CALIBRATE} --checkpoint {BAD}"
OUT = f"{PLAN} --rho 0.5 --out {BAD}"


def pipe_at(name: str) -> Prepare:
    """A pipe would make the one hang that opens it unasked."""

    def prepare(place: Place) -> None:
        (place.work / name).parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(place.work / name)

    return prepare


def link_to(target: str) -> Prepare:
    return lambda place: (place.work / "bad").symlink_to(target)


NO_FILE: dict[str, Prepare] = {
    "folder": folder_at("bad"),
    "empty": bytes_at("bad", b""),
    "endless": link_to("/dev/zero"),
    "noise": bytes_at("bad", bytes(range(256)) * 8),
    "dangling": link_to("nowhere"),
    "circle": link_to("bad"),
}
WRONG_JSON = {
    "deep": (SCHEDULE, b"[" * 200_000),
    "huge integer": (SCHEDULE, b'{"rho": ' + b"9" * 5001 + b"}"),
    "nan": (SCHEDULE, b'{"rho": NaN}'),
    "beyond float": (ACS, b"[" + b"9" * 400 + b", 0.1" * 11 + b"]"),
    "number": (CLASS_MAP, b"7"),
    "not utf-8": (CLASS_MAP, b"\xff\xfe{}"),
    "surrogates": (SAMPLES, b'{"\\ud800": 1}'),
}
WRONG_TOML = {
    "deep": "a = " + "[" * 5000,
    "half": "rho = ",
    "huge integer": "max_images = " + "9" * 5001,
    "unknown key": "rhoo = 0.5",
    "extends itself": 'extends = "bad"',
    "extends NUL": 'extends = "a\\u0000b"',
}


def _packed(path: Path, *, flags: int, method: int) -> None:
    """An archive whose member is encrypted, or packed by a method that nobody has."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("images.npy", bytes(100))
    content = bytearray(path.read_bytes())
    entry = content.index(b"PK\x01\x02")
    for local, central, value in ((6, 8, flags), (8, 10, method)):
        content[local] = content[entry + central] = value
    path.write_bytes(bytes(content))


def _huge(count: int, path: Path) -> None:
    """So many numbers, and none of them written."""
    with zipfile.ZipFile(path, "w") as archive:
        header = {"descr": "<f4", "fortran_order": False, "shape": (count,)}
        with archive.open("images.npy", "w") as member:
            np.lib.format.write_array_header_1_0(member, header)


def _saved(arrays: dict[str, np.ndarray[Any, Any]], path: Path) -> None:
    with path.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


IMAGES = np.zeros((2, 3, 32, 32), np.float32)
# What the answer names: the file, or the input that the arrays do not fit.
ARRAY_FILES: dict[str, tuple[Callable[[Path], None], str]] = {
    "35 GiB": (partial(_huge, 35 << 30), "bad"),
    "2^64 numbers": (partial(_huge, 2**64), "bad"),
    "encrypted": (partial(_packed, flags=1, method=0), "bad"),
    "compressed": (partial(_packed, flags=0, method=77), "bad"),
    "objects": (partial(_saved, {"images": np.array([{}], object)}), "bad"),
    "no images": (partial(_saved, {"pictures": IMAGES}), "bad"),
    "shape": (partial(_saved, {"images": IMAGES[:, :, 1:]}), "images"),
    "type": (partial(_saved, {"images": IMAGES.astype(np.float64)}), "images"),
    "none": (partial(_saved, {"images": IMAGES[:0]}), "bad"),
    "nan": (partial(_saved, {"images": IMAGES + np.nan}), "bad"),
}


def _pipes() -> Iterator[Hostile]:
    read = (*READERS, ACS, CLASS_MAP, SAMPLES, CHECKPOINT, f"inspect {BAD}")
    for line in (*read, OUT):
        yield Hostile(line, "bad", prepare=pipe_at("bad"), name="a pipe")
    shards = f"{CALIBRATE} --images {{work}}/shards"
    yield Hostile(shards, "bad.tar", prepare=pipe_at("shards/bad.tar"), name="a pipe")
    embeddings = f"{CALIBRATE} --set model.text_embeddings={{work}}/bad.npz"
    yield Hostile(embeddings, "bad", prepare=pipe_at("bad.npz"), name="a pipe")


def _files() -> Iterator[Hostile]:
    for (name, prepare), line in zip(NO_FILE.items(), cycle(READERS)):
        says = "no amount" if line == TOML and name == "empty" else "bad"
        yield Hostile(line, says, prepare=prepare, name=name)
    yield Hostile(OUT, "bad", prepare=NO_FILE["folder"], name="folder")
    for name, (line, content) in WRONG_JSON.items():
        yield Hostile(line, "bad", prepare=bytes_at("bad", content), name=name)
    for name, text in WRONG_TOML.items():
        yield Hostile(TOML, "", prepare=text_at("bad", text), name=name)
    for name, (make, says) in ARRAY_FILES.items():

        def prepare_arrays(place: Place, make: Callable[[Path], None] = make) -> None:
            make(place.work / "bad")

        yield Hostile(ARRAYS, says, prepare=prepare_arrays, name=name)
    yield Hostile(
        CLASS_MAP,
        "no class for folder 'class_1'",
        prepare=text_at("bad", '{"class_0": 0}'),
        name="a class left out",
    )


FILES = (*_pipes(), *_files())
