"""The settings of an evaluation, apart from the images, which the flags of other verbs do not need to load."""

from dataclasses import dataclass
from pathlib import Path

from exporter.errors import RecipeError
from exporter.settings import Natural, Points, Positive, Settings, Threads, option

__all__ = ["EvalSettings"]


@dataclass(frozen=True, kw_only=True)
class EvalSettings(Settings):
    """Which images count, and how they are run."""

    class_map: Path | None = option(
        None, "JSON of class name to class index; by default sorted order.", group="images"
    )
    subset: bool = option(
        False, "Only the classes of the class map compete, as for ImageNet-R and -A.", group="images"
    )
    labels: bool = option(
        True, "Without labels, only the agreement of two models is measured.", group="images"
    )
    max_images: Positive | None = option(
        None,
        "Largest number of images: of a folder drawn by the seed, of tar files the first.",
        group="images",
    )
    seed: Natural = option(0, "Seed of that draw.", group="advanced")
    batch: Positive = option(
        32, "Images per run; an engine takes the sizes that it was built for.", group="measurement"
    )
    workers: Threads = option(0, "Threads that decode images; 0 is one per usable CPU.", group="advanced")
    within: Points | None = option(
        None,
        "Fail if the 95 % interval is wider than ± so many points: of the loss, of one model's top-1, or of "
        "retrieval@1.",
        group="measurement",
    )

    def check(self) -> None:
        """Raise RecipeError for a subset of no class map."""
        super().check()
        if self.subset and (self.class_map is None or not self.labels):
            raise RecipeError("subset", "no class map", "--class-map FILE, whose classes compete")
