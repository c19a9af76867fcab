"""The list of timm's models that can be pruned, and why others cannot, made once for a release of timm.

Building them all takes minutes, reading the list milliseconds. `scripts/list_models.py` makes it anew.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from exporter.core.base.canonical_json import load_json
from exporter.core.base.errors import ModelError
from exporter.core.base.files import has_file, is_path
from exporter.core.base.records import ModelSpec
from exporter.models.request import ModelRequest

LIST = Path(__file__).with_name("listed.json")
A_MODEL = "the name of a model, e.g. digits_vit"
NO_SUCH_MODEL = "model"  # subject of the error for an unknown name
# What the reason says of a network whose class nothing adapts.
NO_ADAPTER = "which has no adapter"
# The file of a folder that is a model of Hugging Face's.
CONFIG = "config.json"


@dataclass(frozen=True)
class Answer:
    """Whether a model can be pruned: its spec, without the names of its classes, or the reason why not."""

    name: str
    spec: ModelSpec | None
    reason: str = ""


@dataclass(frozen=True)
class ModelList:
    """Accepted models by name, and the names of refused ones by reason, under one release of timm."""

    timm: str
    accepted: Mapping[str, ModelSpec]
    refused: Mapping[str, tuple[str, ...]]

    @property
    def is_current(self) -> bool:
        """Whether it was made with the installed release of timm, or none is installed."""
        try:
            return version("timm") == self.timm
        except PackageNotFoundError:
            return True

    @property
    def answers(self) -> dict[str, Answer]:
        """One for each name, accepted ones first."""
        accepted = {name: Answer(name, spec) for name, spec in self.accepted.items()}
        refused = {
            name: Answer(name, None, reason)
            for reason, names in self.refused.items()
            for name in names
        }
        return {**accepted, **refused}


@cache
def model_list() -> ModelList:
    """Read the list."""
    return load_json(ModelList, LIST)


def listed(request: ModelRequest) -> Answer | None:
    """Return the answer for a request that is a name and no more.

    None if the name is not in the list or that of a folder with a model, or the list is of another release of timm.
    """
    name = request.name
    return _answer(name, name) if request == ModelRequest(name) else None


def check_name(name: str) -> None:
    """Raise ModelError for a name that nothing has, without PyTorch.

    Names with a / or a : pass, which only a library or a hub knows, and all where the list is of another release.
    """
    models, root = model_list(), name.partition("#")[0]
    is_place = root.startswith((".", "/", "~"))
    if not is_place and (not models.is_current or set(root) & set("/:")):
        return
    if plain_name(root) not in models.answers and not has_file(root, CONFIG):
        raise unknown_model(name)


def check_adapter(name: str) -> None:
    """Raise ModelError for a listed network that nothing adapts, whatever its arguments, before a hub is asked."""
    answer = _answer(name, plain_name(name.partition("#")[0]))
    if answer is not None and NO_ADAPTER in answer.reason:
        expected, hint = "a ViT of a known family", "star-export models lists them"
        raise ModelError(name, answer.reason, expected, hint)


def _answer(place: str, name: str) -> Answer | None:
    """Return the answer for a name; None if there is a model at the place, or the list is of another release."""
    models = model_list()
    if not models.is_current or has_file(place, CONFIG):
        return None
    return models.answers.get(name)


def plain_name(name: str) -> str:
    """Return timm's name of a network, here or on the hub, without the tag of its weights."""
    return name.rpartition(":")[2].removeprefix("timm/").partition(".")[0]


def unknown_model(name: str) -> ModelError:
    """Return the error for a name that nothing has, with the nearest names, or for none."""
    if not name:
        return ModelError("--model", "nothing", A_MODEL)
    root = name.partition("#")[0]
    got, expected = repr(name), "a name that timm or this project knows"
    nearest = _nearest_files(root)
    if is_path(root):
        got, expected = f"{got}, no such folder", f"a folder with a {CONFIG}, or a name"
    else:
        nearest += _nearest_names(root)
    hint = f"nearest names: {', '.join(nearest[:3])}" if nearest else ""
    with suppress(OSError):  # a name that no file system takes
        if Path(root).is_dir():
            got, hint = f"{name!r}, a folder", ""
        elif Path(root).exists():
            got, hint = f"{name!r}, a file", "--model NAME --checkpoint FILE"
    return ModelError(NO_SUCH_MODEL, got, expected, hint)


def _nearest_names(name: str) -> list[str]:
    """Return listed names, those first that begin with this one."""
    accepted = model_list().accepted
    longer = [known for known in accepted if name and known.startswith(name)]
    near = get_close_matches(name, accepted, cutoff=0.5)
    return list(dict.fromkeys([*longer, *near]))


def _nearest_files(name: str) -> list[str]:
    """Return what nearly has the name of a path, in its folder."""
    place = Path(name)
    with suppress(OSError, ValueError):
        names = [entry.name for entry in place.parent.iterdir()]
        near = get_close_matches(place.name, names, cutoff=0.8)
        return [os.path.join(place.parent, entry) for entry in near]  # noqa: PTH118
    return []
