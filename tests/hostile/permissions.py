"""What may not be read, what may not be written, and names that are no UTF-8."""

import shutil
from collections.abc import Iterator

from tests.hostile.files import OUT, SCHEDULE
from tests.hostile.flags import CALIBRATE, COMPILE
from tests.hostile.inputs import Hostile, Place, Prepare, text_at


def _locked(name: str, mode: int = 0) -> Prepare:
    """A file whose own bits, or those of a folder above it, forbid something."""

    def prepare(place: Place) -> None:
        text_at("images/class_0/0.png", "secret")(place)
        (place.work / name).chmod(mode)

    return prepare


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
    images, picture = "{work}/images", "images/class_0/0.png"
    schedule = SCHEDULE.replace("{work}/bad", f"{{work}}/{picture}")
    yield Hostile(schedule, "0.png", prepare=_locked(picture), name="a locked file")
    calibrate = f"{CALIBRATE} --images {images}"
    for name in ("images/class_0", picture):
        yield Hostile(calibrate, "image", prepare=_locked(name), name=f"locked {name}")
    denied = "got Permission denied | need a folder that can be read"
    yield Hostile(calibrate, denied, prepare=_listed, name="a listed folder")
    compiled = f"{COMPILE} --images {images}/class_0"
    yield Hostile(compiled, "class_0", prepare=_locked("images"), name="a closed place")
    out = OUT.replace("{work}/bad", f"{images}/y")
    unwritable = _locked("images", 0o555)
    yield Hostile(
        out,
        "images | got Permission denied",
        prepare=unwritable,
        name="a place that is read only",
    )
    evaluated = f"eval {{folder}} --images {images}"
    skipped = "1 evaluation images skipped: class_0/torn"
    yield Hostile(evaluated, skipped, 0, _foreign_names, "names that are no UTF-8")


PERMISSIONS = tuple(_permissions())
