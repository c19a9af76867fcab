"""Inputs of single causes: chains, bare arrays, empty graphs, huge scores, folders for files, no permission."""

import shutil
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import onnx

from tests.hostile.files import ARRAYS, ONNX, READERS
from tests.hostile.flags import CALIBRATE, COMPILE, EXPORT, FINETUNE, MODEL, PLAN, TUNE
from tests.hostile.folders import VERBS, copied, pruned_in
from tests.hostile.inputs import Hostile, Place, each

CHAIN = 1500
# Where commands keep what is not finished.
PARTIAL = (
    (CALIBRATE, "c.safetensors.partial"),
    (f"{COMPILE} --method star", "out/calibration.safetensors.partial"),
    (FINETUNE, "f.ckpt"),
    (f"{FINETUNE} --method star", "f.calibration.partial"),
)


def _chain(place: Place) -> None:
    for index in range(CHAIN):
        (place.work / f"{index}.toml").write_text(
            f'extends = "{index + 1}.toml"\n', encoding="utf-8"
        )
    (place.work / f"{CHAIN}.toml").write_text("[prune]\nrho = 0.5\n", encoding="utf-8")


def _bare_array(place: Place) -> None:
    np.save(place.work / "bad.npy", np.zeros((2, 3, 32, 32), np.float32))


def _without_graph(model: onnx.ModelProto) -> None:
    model.ClearField("graph")


def _without_inputs(model: onnx.ModelProto) -> None:
    del model.graph.input[:]


def _without_outputs(model: onnx.ModelProto) -> None:
    del model.graph.output[:]


def _model(change: Callable[[onnx.ModelProto], None], place: Place) -> None:
    model = onnx.load(place.pruned)
    change(model)
    (place.work / "bad").write_bytes(model.SerializeToString())


def _scores(values: list[float], place: Place) -> None:
    (place.work / "bad").write_text(str(values), encoding="utf-8")


def _folder_at(name: str, place: Place) -> None:
    (place.work / name).mkdir(parents=True)


def _singles() -> Iterator[Hostile]:
    yield Hostile(
        "compile --out {work}/out --recipe {work}/0.toml",
        "extends | got more than",
        prepare=_chain,
        name="chain",
    )
    for line in ("inspect {work}/bad.npy", f"{ARRAYS[0]}.npy"):
        yield Hostile(line, "bad.npy", prepare=_bare_array, name="a bare array")
    changes = {
        "graph": _without_graph,
        "inputs": _without_inputs,
        "outputs": _without_outputs,
    }
    for name, change in changes.items():
        prepare = partial(_model, change)
        yield Hostile(ONNX[1], "bad", prepare=prepare, name=f"no {name}")
    for values in (
        [1e308, -1e308] * 6,
        [-1e308, *[1e308] * 11],
        [1e308] * 12,
        [0.1, 0.2],
    ):
        line = (
            "plan --model vit_tiny_patch16_224 --method star --rho 0.5 --acs {work}/bad"
        )
        yield Hostile(
            line,
            "ACS",
            prepare=partial(_scores, values),
            name=f"ACS from {values[0]} to {values[1]}",
        )
    for line, name in PARTIAL:
        yield Hostile(
            line,
            name,
            prepare=partial(_folder_at, name),
            name="a folder for a partial file",
        )
    yield from each(
        "plan --method tome --rho 0.5 --model",
        ("timm/", "model"),
        ("timm/nosuch", "timm/nosuch"),
    )
    yield from each(
        "plan --method tome --rho 0.5 --model", ("timm/resnet50", "resnet50")
    )
    yield Hostile(
        "plan --method tome --rho 0.5 --model timm/vit_tiny_patch16_224",
        "patches kept",
        0,
    )


def _locked_file(place: Place) -> None:
    (place.work / "bad").write_bytes(b"secret")
    (place.work / "bad").chmod(0)


def _locked_images(name: str, place: Place) -> None:
    (place.work / "images" / "class_0").mkdir(parents=True)
    (place.work / "images" / "class_0" / "0.png").write_bytes(b"secret")
    (place.work / "images" / name).chmod(0)


def _locked_model(place: Place) -> None:
    pruned_in(copied(place)).chmod(0)


def _locked_folder(place: Place) -> None:
    copied(place).chmod(0)


def _locked_place(place: Place) -> None:
    (place.work / "locked").mkdir(mode=0o555)


LOCKED = "{work}/locked/x"
WRITERS = (
    f"{PLAN} --rho 0.5 --out {LOCKED}",
    f"{CALIBRATE} --out {LOCKED}",
    f"{FINETUNE} --out {LOCKED}.safetensors",
    f"{EXPORT} --out {LOCKED}",
    f"{COMPILE} --out {LOCKED}",
    f"{TUNE} --out {LOCKED}",
    f"build --plugin-source {LOCKED}",
    f"serve-config {{folder}} --out {LOCKED}",
    f"depth apply {MODEL} --attention 2 --out {LOCKED}.safetensors",
)


def _denied() -> Iterator[Hostile]:
    """What permissions forbid: to read a file or a folder, or to write into one."""
    for line in READERS:
        yield Hostile(line, "bad", prepare=_locked_file, name="locked")
    for name in (".", "class_0", "class_0/0.png"):
        line, prepare = (
            f"{CALIBRATE} --images {{work}}/images",
            partial(_locked_images, name),
        )
        yield Hostile(line, "image", prepare=prepare, name=f"locked {name}")
    yield Hostile(VERBS[0], "x", prepare=_locked_model, name="a locked model")
    yield Hostile(VERBS[0], "x", prepare=_locked_folder, name="a locked folder")
    yield from (
        Hostile(line, "locked", prepare=_locked_place, name="a locked place")
        for line in WRITERS
    )


def _closed(place: Place) -> None:
    (place.work / "locked" / "x").mkdir(parents=True)
    (place.work / "locked").chmod(0)


def _listed(place: Place) -> None:
    """A subfolder whose names can be listed, and nothing else."""
    _foreign_names(place)
    (place.work / "images" / "class_1").chmod(0o444)


def _foreign_names(place: Place) -> None:
    """Images, and folders of them, whose names are no UTF-8; one image is none."""
    shutil.copytree(place.images, place.work / "images")
    folder = place.work / "images"
    (folder / "class_0" / "0.png").rename(folder / "class_0" / "\udcff.png")
    (folder / "class_0" / "torn\udcfe.png").write_bytes(b"torn")


def _foreign_file(name: str, place: Place) -> None:
    (place.work / name).parent.mkdir(exist_ok=True)
    (place.work / name).write_bytes(b"of another program")


def _places() -> Iterator[Hostile]:
    """What lies where nobody may look, and what is not ours."""
    reads = [line.replace("{work}/bad", LOCKED) for line in READERS]
    for line in (*reads, f"check {LOCKED}", f"{COMPILE} --images {LOCKED}", WRITERS[0]):
        yield Hostile(line, "locked", prepare=_closed, name="a closed folder")
    yield Hostile(
        f"{CALIBRATE} --images {{work}}/images",
        "got Permission denied | need a folder that can be read",
        prepare=_listed,
        name="a listed folder",
    )
    line = "eval {folder} --images {work}/images"
    yield Hostile(
        line,
        "1 evaluation images skipped: class_0/torn",
        0,
        _foreign_names,
        "names that are no UTF-8",
    )
    for line, name in PARTIAL:
        yield Hostile(
            line,
            name,
            prepare=partial(_foreign_file, name),
            name="a file of another program",
        )


CAUSES = (*_places(), *_singles(), *_denied())
