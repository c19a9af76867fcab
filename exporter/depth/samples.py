"""The measured models of a collection, on disk as soon as they are measured."""

from dataclasses import dataclass
from pathlib import Path

from exporter.depth.gates import Importance
from exporter.depth.plan import DepthPlan
from exporter.errors import ArtefactError
from exporter.formats.canonical_json import from_json, load_json, read_json, save_json, to_json

__all__ = ["Measured", "SampleBook"]


@dataclass(frozen=True)
class Measured:
    """A sample as `exporter.depth.predictor` takes it, the plan of its model, and the number of images."""

    attention: float
    activation: float
    accuracy: float
    images: int
    plan: DepthPlan

    @classmethod
    def of(cls, plan: DepthPlan, depth: int, hits: int, images: int) -> "Measured":
        """Return the sample of a model of `depth` blocks that finds the class of `hits` images."""
        shares = len(plan.attention) / depth, len(plan.activation) / depth
        return cls(*shares, accuracy=100 * hits / images, images=images, plan=plan)


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
            raise ArtefactError(str(self.path), str(error), "the samples of a collection") from None

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
