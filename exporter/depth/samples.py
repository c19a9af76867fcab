"""The measured models of a collection, on disk as soon as they are measured."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from exporter.depth.gates import Importance
from exporter.depth.plan import DepthPlan
from exporter.depth.predictor import Sample
from exporter.errors import ArtefactError, reason_of
from exporter.formats.canonical_json import from_json, load_json, read_json, save_json, to_json

__all__ = ["Measured", "SampleBook", "Tally"]


class Tally(NamedTuple):
    """Correctly classified images, out of `images`."""

    hits: int
    images: int


@dataclass(frozen=True)
class Measured:
    """A sample as `exporter.depth.predictor` takes it, and the plan of its model."""

    attention: float
    activation: float
    accuracy: float
    images: int
    plan: DepthPlan

    @classmethod
    def of(cls, plan: DepthPlan, depth: int, tally: Tally) -> "Measured":
        """Return the sample of a model of `depth` blocks."""
        shares = len(plan.attention) / depth, len(plan.activation) / depth
        return cls(*shares, 100 * tally.hits / tally.images, tally.images, plan)

    @property
    def sample(self) -> Sample:
        """What a predictor is fitted to."""
        return Sample(self.attention, self.activation, self.accuracy, self.images)


@dataclass(frozen=True)
class SampleBook:
    """The files of a collection in a folder: `samples.json`, and `ranking.json`, the units' first importance."""

    folder: Path

    @property
    def path(self) -> Path:
        """The file of the samples, a JSON list."""
        return self.folder / "samples.json"

    def samples(self) -> tuple[Measured, ...]:
        """Those measured so far, in order.

        Raises:
            ArtefactError: The file is broken.
        """
        if not self.path.exists():
            return ()
        try:
            told = read_json(self.path)
            return tuple(from_json(Measured, to_json(each), source=str(self.path)) for each in told)
        except (OSError, ValueError, TypeError, RecursionError) as error:
            raise ArtefactError(str(self.path), reason_of(error), "the samples of a collection") from None

    def add(self, measured: Measured) -> None:
        """Write one more sample.

        Raises:
            OutputError: The file cannot be written.
        """
        save_json([*self.samples(), measured], self.path)

    def ranking(self) -> Importance:
        """The importance of all units before the first step.

        Raises:
            ArtefactError: The file is missing or broken.
        """
        return load_json(Importance, self.folder / "ranking.json")

    def rank(self, importance: Importance) -> None:
        """Write that importance.

        Raises:
            OutputError: The file cannot be written.
        """
        save_json(importance, self.folder / "ranking.json")
