"""Files that are not what they should be: each cause where one command reads it, a pipe wherever one is opened."""

import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tests.hostile.flags import CALIBRATE, COMPILE, HUGE
from tests.hostile.inputs import Hostile, Place, Prepare, bytes_at, text_at

PLAN = "plan --model vit_tiny_patch16_224"
BAD = "{work}/bad"

# Commands that read JSON, TOML, tensors, ONNX, arrays and a checkpoint from `{work}/bad`, and one that writes it.
SCHEDULE = f"{PLAN} --schedule {BAD}"
TOML = f"compile --out {{work}}/out --recipe {BAD}"
TENSORS = f"{COMPILE} --calibration {BAD}"
ONNX = f"bench --dense {BAD} --pruned {BAD}"
ARRAYS = f"bench --dense {{dense}} --pruned {{pruned}} --reference {BAD}"
CHECKPOINT = f"{CALIBRATE} --checkpoint {BAD}"
OUT = f"{PLAN} --rho 0.5 --out {BAD}"
OPENED = (SCHEDULE, TOML, TENSORS, ONNX, ARRAYS, CHECKPOINT, OUT)

CHAIN = 1500
# What a command reads, and a part of its answer.
CONTENTS: dict[str, tuple[str, bytes, str]] = {
    "deep": (SCHEDULE, b"[" * 200_000, "bad"),
    "huge integer": (SCHEDULE, f'{{"rho": {HUGE}}}'.encode(), "bad"),
    "beyond float": (
        f"{PLAN} --method star --rho 0.5 --acs {BAD}",
        b"[" + b"9" * 400 + b", 0.1" * 11 + b"]",
        "bad",
    ),
    "a number": (f"eval {{folder}} --images {{images}} --class-map {BAD}", b"7", "bad"),
    "surrogates": (
        f"depth choose --model vit_tiny_patch16_224 --samples {BAD} --units 4",
        b'{"\\ud800": 1}',
        "bad",
    ),
    "deep recipe": (TOML, b"a = " + b"[" * 5000, "bad"),
    "huge integer in a recipe": (TOML, f"max_images = {HUGE}".encode(), "bad"),
    "NUL in a path": (TOML, b'extends = "a\\u0000b"', "extends"),
    "noise": (ONNX, bytes(range(256)) * 8, "bad"),
}


def pipe_at(name: str) -> Prepare:
    """A pipe would make the one hang that opens it unasked."""

    def prepare(place: Place) -> None:
        (place.work / name).parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(place.work / name)

    return prepare


def _endless(place: Place) -> None:
    (place.work / "bad").symlink_to("/dev/zero")


def _chain(place: Place) -> None:
    for index in range(CHAIN):
        text_at(f"{index}.toml", f'extends = "{index + 1}.toml"\n')(place)
    text_at(f"{CHAIN}.toml", "[prune]\nrho = 0.5\n")(place)


def _huge(place: Place) -> None:
    """35 GiB of numbers, and none of them written."""
    with zipfile.ZipFile(place.work / "bad", "w") as archive:
        header = {"descr": "<f4", "fortran_order": False, "shape": (35 << 28,)}
        with archive.open("images.npy", "w") as member:
            np.lib.format.write_array_header_1_0(member, header)


def _encrypted(place: Place) -> None:
    path: Path = place.work / "bad"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("images.npy", bytes(100))
    content = bytearray(path.read_bytes())
    content[6] = content[content.index(b"PK\x01\x02") + 8] = 1
    path.write_bytes(bytes(content))


def _images(images: np.ndarray[Any, Any]) -> Prepare:
    def prepare(place: Place) -> None:
        with (place.work / "bad").open("wb") as file:
            np.savez(file, images=images)

    return prepare


def _files() -> Iterator[Hostile]:
    for line in OPENED:
        yield Hostile(line, "bad", prepare=pipe_at("bad"), name="a pipe")
    shards = f"{CALIBRATE} --images {{work}}/shards"
    yield Hostile(shards, "bad.tar", prepare=pipe_at("shards/bad.tar"), name="a pipe")
    yield Hostile(TENSORS, "bad", prepare=_endless, name="endless")
    yield Hostile(
        "compile --out {work}/out --recipe {work}/0.toml",
        "extends | got more than",
        prepare=_chain,
        name="a chain",
    )
    for name, (line, content, says) in CONTENTS.items():
        yield Hostile(line, says, prepare=bytes_at("bad", content), name=name)
    for prepare, name in ((_huge, "35 GiB"), (_encrypted, "encrypted")):
        yield Hostile(ARRAYS, "bad", prepare=prepare, name=name)
    objects, other = np.array([{}], object), np.zeros((2, 2, 32, 32), np.float32)
    yield Hostile(ARRAYS, "bad", prepare=_images(objects), name="objects")
    yield Hostile(ARRAYS, "images", prepare=_images(other), name="another shape")


FILES = tuple(_files())
