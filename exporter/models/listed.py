"""The list of timm's models that can be pruned, and why others cannot, made once for a release of timm.

Building them all takes minutes, reading the list milliseconds. `scripts/list_models.py` makes it anew.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from exporter.formats.canonical_json import load_json

LIST = Path(__file__).with_name("listed.json")


@dataclass(frozen=True)
class Shape:
    """What a model that can be pruned looks like.

    `pixels` and `grid` (of patches) are (height, width). `own_head` is False for a model without a classifier,
    which gives an embedding: `num_classes` adds one, and a checkpoint its weights.
    """

    blocks: int
    channels: int
    pixels: tuple[int, int]
    grid: tuple[int, int]
    own_head: bool


@dataclass(frozen=True)
class Answer:
    """Whether a model can be pruned: its shape, or the reason why not."""

    name: str
    shape: Shape | None
    reason: str = ""


@dataclass(frozen=True)
class ModelList:
    """Accepted models by name, and the names of refused ones by reason, under one release of timm."""

    timm: str
    accepted: Mapping[str, Shape]
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
        accepted = (Answer(name, shape) for name, shape in self.accepted.items())
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


def listed(name: str) -> Answer | None:
    """Return the answer for a name; None if it is not in the list, or the list is of another release of timm."""
    models = model_list()
    if not models.is_current:
        return None
    return next((answer for answer in models.answers if answer.name == name), None)
