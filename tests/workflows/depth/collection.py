"""A collection with several rho, without the training: samples of a known polynomial."""

from pathlib import Path

from exporter.depth.checkpoint import describe
from exporter.depth.gates import Importance
from exporter.depth.plan import DepthPlan
from exporter.depth.samples import Measured, SampleBook, Tally
from exporter.formats.canonical_json import save_json
from exporter.models.base import PrunableViT
from exporter.schedule.plan import ScheduleSettings
from exporter.vocabulary import Method
from exporter.workflows.depth.exam import SCORING
from tests.commands import Workplace
from tests.disk_cache import shared_folder

__all__ = ["RHOS", "accuracy", "collection"]

DEPTH, IMAGES, RHOS = 4, 1000, (1.0, 0.75, 0.5)
IMPORTANCE = Importance((0.3, 0.1, 0.4, 0.2), (0.1, 0.2, 0.3, 0.4))
COUNTS = ((0, 0), (1, 0), (2, 0), (0, 1), (0, 2), (1, 1))


def accuracy(attention: int, activation: int, rho: float) -> float:
    """In percent: an attention layer costs 4 points, an activation 8, and all patches 40."""
    return 90 - 4 * attention - 8 * activation - 40 * (1 - rho)


def collection(workplace: Workplace) -> tuple[PrunableViT, Path]:
    """The shape of the model, and a folder as `collect` leaves it."""

    def make(folder: Path) -> None:
        book = SampleBook(folder)
        book.rank(IMPORTANCE)
        save_json(ScheduleSettings(method=Method.TOME), folder / SCORING)
        for attention, activation in COUNTS:
            plan = DepthPlan((2, 4)[:attention], (1, 2)[:activation])
            hits = [round(IMAGES / 100 * accuracy(attention, activation, rho)) for rho in RHOS]
            tallies = [Tally(each, IMAGES, rho) for each, rho in zip(hits, RHOS, strict=True)]
            book.add(*(Measured.of(plan, DEPTH, tally) for tally in tallies))

    return describe(workplace.request), shared_folder("depth collection", make)
