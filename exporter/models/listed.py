"""The list of timm's models that can be pruned, and why others cannot, made once for a release of timm.

Building them all takes minutes, reading the list milliseconds. `scripts/list_models.py` makes it anew.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from exporter.formats.canonical_json import load_json
from exporter.models.request import ModelRequest
from exporter.records import ModelSpec

LIST = Path(__file__).with_name("listed.json")


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
    def answers(self) -> tuple[Answer, ...]:
        """One for each name, accepted ones first."""
        accepted = (Answer(name, spec) for name, spec in self.accepted.items())
        refused = (
            Answer(name, None, reason)
            for reason, names in self.refused.items()
            for name in names
        )
        return (*accepted, *refused)


@cache
def model_list() -> ModelList:
    """Read the list."""
    return load_json(ModelList, LIST)


def listed(request: ModelRequest) -> Answer | None:
    """Return the answer for a request that is a name and no more.

    None if the name is not in the list or that of a folder with a model, or the list is of another release of timm.
    """
    name, models = request.name, model_list()
    if request != ModelRequest(name) or not models.is_current:
        return None
    for answer in models.answers:
        # A name that is in the list is no longer than a file's may be.
        if answer.name == name and not Path(name, "config.json").is_file():
            return answer
    return None
