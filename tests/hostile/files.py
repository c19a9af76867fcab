"""Files that are not what they should be, in every place that a command reads one from."""

import json
import os
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from tests.hostile.flags import CALIBRATE, COMPILE, EVAL, FINETUNE, MODEL
from tests.hostile.inputs import Hostile, Place

PLAN = "plan --model vit_tiny_patch16_224"
BAD = "{work}/bad"

# Commands that read JSON, TOML, tensors, ONNX and arrays from `{work}/bad`.
JSON = (
    f"{PLAN} --schedule {BAD}",
    f"{PLAN} --method star --rho 0.5 --acs {BAD}",
    f"{COMPILE} --class-map {BAD}",
    f"depth choose --model vit_tiny_patch16_224 --samples {BAD} --units 4",
)
TOML = (f"compile --out {{work}}/out --recipe {BAD}",)
TENSORS = (
    f"{COMPILE} --calibration {BAD}",
    f"{CALIBRATE} --checkpoint {BAD}",
    f"{FINETUNE} --teacher {BAD}",
    f"depth apply {MODEL} --checkpoint {BAD} --attention 1 --out {{work}}/d.safetensors",
)
ONNX = (
    f"check --onnx {BAD} {MODEL} --images {{images}}",
    f"bench --dense {BAD} --pruned {BAD}",
    f"eval {BAD} --images {{images}}",
)
ARRAYS = ("bench --dense {dense} --pruned {pruned} --reference " + BAD,)
ANY = (*JSON, *TOML, *TENSORS, *ONNX, *ARRAYS, f"inspect {BAD}")


def _bytes(content: bytes, place: Place) -> None:
    (place.work / "bad").write_bytes(content)


def _text(content: str, place: Place) -> None:
    (place.work / "bad").write_text(content, encoding="utf-8")


def _fifo(place: Place) -> None:
    os.mkfifo(place.work / "bad")


def _shard(place: Place) -> None:
    (place.work / "shards").mkdir()
    os.mkfifo(place.work / "shards" / "bad.tar")


def _embeddings(ending: str, place: Place) -> None:
    os.mkfifo(place.work / f"bad.{ending}")
    (place.work / "r.toml").write_text(
        f'model.text_embeddings = "bad.{ending}"', encoding="utf-8"
    )


def _folder(place: Place) -> None:
    (place.work / "bad").mkdir()


def _link(target: str, place: Place) -> None:
    (place.work / "bad").symlink_to(target)


# Commands that write there.
OUT = (
    f"{PLAN} --rho 0.5 --out {BAD}",
    f"{CALIBRATE} --out {BAD}",
    f"{FINETUNE} --out {BAD}",
)

# What no command can read, and none can write over.
IN_THE_WAY = ("folder", "endless", "circle")
NO_FILE: dict[str, Callable[[Place], None]] = {
    "empty": partial(_bytes, b""),
    "noise": partial(_bytes, bytes(range(256)) * 8),
    "zeros": partial(_bytes, bytes(2048)),
    "folder": _folder,
    "fifo": _fifo,
    "endless": partial(_link, "/dev/zero"),
    "dangling": partial(_link, "nowhere"),
    "circle": partial(_link, "bad"),
}

DEEP = "[" * 200_000
OBJECT: dict[str, Any] = {"model": "vit_tiny_patch16_224", "schedule": 1}
WRONG_JSON = {
    "deep": DEEP,
    "half": '{"model": ',
    "huge integer": '{"rho": ' + "9" * 5001 + "}",
    "beyond float": f"[{'9' * 400}, 0.1, {', '.join(['0.5'] * 10)}]",
    "list of lists": "[[1, 2], [3]]",
    "number": "7",
    "null": "null",
    "nan": '{"rho": NaN}',
    "other keys": json.dumps(OBJECT),
    "surrogates": '{"\\ud800": 1}',
    "not utf-8": None,
}
WRONG_TOML = {
    "deep": "a = " + "[" * 5000,
    "half": "rho = ",
    "huge integer": "max_images = " + "9" * 5001,
    "unknown key": "rhoo = 0.5",
    "a table": "[rho]\nx = 1",
    "extends itself": 'extends = "bad"',
    "extends nothing": 'extends = "none.toml"',
    "extends NUL": 'extends = "a\\u0000b"',
    "extends a number": "extends = 7",
}


def _json() -> Iterator[Hostile]:
    lines = cycle(JSON)
    for name, content in WRONG_JSON.items():
        prepare = (
            partial(_bytes, b"\xff\xfe{}")
            if content is None
            else partial(_text, content)
        )
        yield Hostile(next(lines), "bad", prepare=prepare, name=name)


def _toml() -> Iterator[Hostile]:
    for name, content in WRONG_TOML.items():
        yield Hostile(TOML[0], "", prepare=partial(_text, content), name=name)


def _packed(path: Path, *, flags: int, method: int) -> None:
    """An archive whose member is encrypted, or packed by a method that nobody has."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("images.npy", bytes(100))
    content = bytearray(path.read_bytes())
    entry = content.index(b"PK\x01\x02")
    content[6] = flags
    content[8] = method
    content[entry + 8] = flags
    content[entry + 10] = method
    path.write_bytes(bytes(content))


def _array(content: bytes, path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("images.npy", content)


def _huge(path: Path) -> None:
    """35 GiB, and none of them written."""
    with (
        zipfile.ZipFile(path, "w") as archive,
        archive.open("images.npy", "w") as member,
    ):
        header = {"descr": "<f4", "fortran_order": False, "shape": (35 << 30,)}
        np.lib.format.write_array_header_1_0(member, header)


SHAPE = (
    b"{'descr': '<f4', 'fortran_order': False, 'shape': (%d, 3, 32, 32), }\n" % 2**64
)
ARCHIVES: dict[str, Callable[[Path], None]] = {
    "35 GiB": _huge,
    "2^64 images": partial(
        _array, b"\x93NUMPY\x01\x00" + len(SHAPE).to_bytes(2, "little") + SHAPE
    ),
    "no array": partial(_array, b"not an array"),
    "encrypted": partial(_packed, flags=1, method=0),
    "compressed": partial(_packed, flags=0, method=77),
}
IMAGES = np.zeros((2, 3, 32, 32), np.float32)
ARRAYS_OF: dict[str, dict[str, np.ndarray[Any, Any]]] = {
    "objects": {"images": np.array([{}], object)},
    "no images": {"pictures": IMAGES},
    "shape": {"images": IMAGES[:, :, 1:]},
    "type": {"images": IMAGES.astype(np.float64)},
    "text": {"images": np.array(["a"])},
    "none": {"images": IMAGES[:0]},
    "nan": {"images": IMAGES + np.nan},
}


def _arrays(kind: str, place: Place) -> None:
    """A file of arrays that differs in one way from `reference.npz`."""
    if kind in ARCHIVES:
        ARCHIVES[kind](place.work / "bad")
        return
    with (place.work / "bad").open("wb") as file:
        np.savez(file, **ARRAYS_OF[kind])  # type: ignore[arg-type]


# What stands in the answer: the file, or the input that the arrays do not fit.
ARRAY_KINDS = {
    kind: "images" if kind in ("shape", "type") else "bad"
    for kind in (*ARCHIVES, *ARRAYS_OF)
}

# A command of each reader. A pipe would make the one hang that opens it unasked: it is given in every place.
READERS = (JSON[0], TOML[0], TENSORS[0], ONNX[0], ARRAYS[0])


def _no_files() -> Iterator[Hostile]:
    for name, prepare in NO_FILE.items():
        for line in (*ANY, *OUT) if name == "fifo" else READERS:
            says = "no amount" if line in TOML and name == "empty" else "bad"
            yield Hostile(line, says, prepare=prepare, name=name)


FILES = (
    *_no_files(),
    *(Hostile(OUT[0], "bad", prepare=NO_FILE[name], name=name) for name in IN_THE_WAY),
    Hostile(
        f"{CALIBRATE} --images {{work}}/shards", "bad.tar", prepare=_shard, name="fifo"
    ),
    Hostile(
        f"{CALIBRATE} --recipe {{work}}/r.toml",
        "bad",
        prepare=partial(_embeddings, "npz"),
        name="fifo of embeddings",
    ),
    Hostile(
        f"{EVAL} --class-map {BAD}",
        "no class for folder 'class_1'",
        prepare=partial(_text, '{"class_0": 0}'),
        name="a class left out",
    ),
    *_json(),
    *_toml(),
    *(
        Hostile(ARRAYS[0], says, prepare=partial(_arrays, kind), name=kind)
        for kind, says in ARRAY_KINDS.items()
    ),
)
