"""What lies where nobody may look or write, what is not ours, and chains, huge scores and empty graphs."""

import shutil
from collections.abc import Iterator
from functools import partial

import numpy as np
import onnx

from tests.hostile.files import ARRAYS, ONNX, PLAN
from tests.hostile.flags import CALIBRATE, COMPILE, FINETUNE
from tests.hostile.folders import VERBS, copied
from tests.hostile.inputs import Hostile, Place, Prepare, folder_at, text_at

CHAIN = 1500
LOCKED = "{work}/locked/x"
# Where commands keep what is not finished.
PARTIAL = ((CALIBRATE, "c.safetensors.partial"), (FINETUNE, "f.ckpt"))


def _chain(place: Place) -> None:
    for index in range(CHAIN):
        text_at(f"{index}.toml", f'extends = "{index + 1}.toml"\n')(place)
    text_at(f"{CHAIN}.toml", "[prune]\nrho = 0.5\n")(place)


def _without(part: str) -> Prepare:
    """A model that lacks its graph, or a part of it."""

    def prepare(place: Place) -> None:
        model = onnx.load(place.pruned)
        if part == "graph":
            model.ClearField("graph")
        else:
            model.graph.ClearField(part)
        (place.work / "bad").write_bytes(model.SerializeToString())

    return prepare


def _bare_array(place: Place) -> None:
    with (place.work / "bad").open("wb") as file:
        np.save(file, np.zeros((2, 3, 32, 32), np.float32))


def _contents() -> Iterator[Hostile]:
    line = "compile --out {work}/out --recipe {work}/0.toml"
    yield Hostile(line, "extends | got more than", prepare=_chain, name="chain")
    yield Hostile(ARRAYS, "bad", prepare=_bare_array, name="a bare array")
    for part in ("graph", "input", "output"):
        yield Hostile(ONNX, "bad", prepare=_without(part), name=f"no {part}")
    line = f"{PLAN} --method star --rho 0.5 --acs {{work}}/bad"
    for values in ([1e308, -1e308] * 6, [-1e308, *[1e308] * 11], [0.1, 0.2]):
        scores = text_at("bad", str(values))
        yield Hostile(line, "ACS", prepare=scores, name=f"ACS {values[:2]}")
    for command, name in PARTIAL:
        folder = folder_at(name)
        yield Hostile(command, name, prepare=folder, name="a folder in its place")
        other = text_at(name, "of another program")
        yield Hostile(command, name, prepare=other, name="a file of another program")


def _locked(name: str) -> Prepare:
    """An image, a folder of images, or the folder of both, that cannot be read."""

    def prepare(place: Place) -> None:
        text_at("images/class_0/0.png", "secret")(place)
        (place.work / "images" / name).chmod(0)

    return prepare


def _locked_file(place: Place) -> None:
    text_at("bad", "secret")(place)
    (place.work / "bad").chmod(0)


def _locked_folder(place: Place) -> None:
    copied(place).chmod(0)


def _locked_place(mode: int, place: Place) -> None:
    (place.work / "locked" / "x").mkdir(parents=True)
    (place.work / "locked").chmod(mode)


def _foreign_names(place: Place) -> None:
    """Images, and folders of them, whose names are no UTF-8; one image is none."""
    folder = shutil.copytree(place.images, place.work / "images") / "class_0"
    (folder / "0.png").rename(folder / "\udcff.png")
    (folder / "torn\udcfe.png").write_bytes(b"torn")


def _listed(place: Place) -> None:
    """A subfolder whose names can be listed, and nothing else."""
    _foreign_names(place)
    (place.work / "images" / "class_1").chmod(0o444)


def _permissions() -> Iterator[Hostile]:
    """What may not be read, and what may not be written."""
    read, images = f"{PLAN} --schedule", f"{CALIBRATE} --images {{work}}/images"
    yield Hostile(f"{read} {{work}}/bad", "bad", prepare=_locked_file, name="locked")
    yield Hostile(VERBS[0], "x", prepare=_locked_folder, name="a locked folder")
    for name in (".", "class_0", "class_0/0.png"):
        prepare = _locked(name)
        yield Hostile(images, "image", prepare=prepare, name=f"locked {name}")
    denied = "got Permission denied | need a folder that can be read"
    yield Hostile(images, denied, prepare=_listed, name="a listed folder")
    skipped = "1 evaluation images skipped: class_0/torn"
    line = "eval {folder} --images {work}/images"
    yield Hostile(line, skipped, 0, _foreign_names, "names that are no UTF-8")
    closed = partial(_locked_place, 0)
    for line in (f"{read} {LOCKED}", f"check {LOCKED}", f"{COMPILE} --images {LOCKED}"):
        yield Hostile(line, "locked", prepare=closed, name="a closed folder")
    unwritable = partial(_locked_place, 0o555)
    for line in (
        f"{PLAN} --rho 0.5 --out {{work}}/locked/y",
        f"{COMPILE} --out {{work}}/locked/y",
        "build --plugin-source {work}/locked/y",
        "serve-config {folder} --out {work}/locked/y",
    ):
        yield Hostile(line, "locked", prepare=unwritable, name="a locked place")


CAUSES = (*_contents(), *_permissions())
