"""The results of the searches for units that train."""

from dataclasses import dataclass

from exporter.depth.collect import Measured
from exporter.depth.gates import Importance
from exporter.workflows.depth.steps import Applied, Found

__all__ = ["Chosen", "Collected"]


@dataclass(frozen=True)
class Collected:
    """The samples of a collection, and the reasons of the images that could not be read, by name.

    `skipped` has those to measure on, `training_skipped` those to train on.
    """

    samples: tuple[Measured, ...]
    skipped: dict[str, str]
    training_skipped: dict[str, str]


@dataclass(frozen=True)
class Chosen:
    """The network without the chosen units, and the scores that chose them.

    `training_skipped` has the reasons of the images to train on that could not be read, by name. Within a budget,
    `found` says how many units of each type go, and `collected` what that follows from unless samples were given.
    """

    applied: Applied
    importance: Importance
    training_skipped: dict[str, str]
    found: Found | None = None
    collected: Collected | None = None
