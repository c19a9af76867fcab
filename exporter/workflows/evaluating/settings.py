"""The settings of an evaluation, apart from the images, which the flags of other verbs do not need to load."""

from dataclasses import dataclass

from exporter.data.class_map import is_order
from exporter.errors import RecipeError
from exporter.files import GivenPath
from exporter.settings import Natural, Points, Positive, Settings, Threads, option

__all__ = ["EvalSettings"]


@dataclass(frozen=True, kw_only=True)
class EvalSettings(Settings):
    """Which images count, and how they are run."""

    class_map: GivenPath = option(
        None,
        "JSON file that maps class names to class indices; or sorted (as torchvision) or natural (as timm), an "
        "order of the folders. By default, the model's names of its classes decide, else the only order there is.",
        group="images",
    )
    subset: bool = option(
        False,
        "Choose only among the classes of the class map, as for ImageNet-R and ImageNet-A.",
        group="images",
    )
    labels: bool = option(
        True,
        "Use the labels of the images; without labels, only the agreement of two models is measured.",
        group="images",
    )
    max_eval_images: Positive | None = option(
        None,
        "Largest number of images; drawn at random by the seed from a folder, the first ones from tar files.",
        group="images",
    )
    seed: Natural = option(0, "Seed of the random draw of images.", group="advanced")
    batch: Positive = option(
        32, "Images per run; an engine takes only the batch sizes that it was built for.", group="measurement"
    )
    workers: Threads = option(0, "Threads that decode images; 0: one per usable CPU.", group="advanced")
    within: Points | None = option(
        None,
        "Fail if the 95 % interval of the loss (or of one model's top-1, or of retrieval@1) is wider than ± "
        "so many percentage points.",
        group="measurement",
    )

    def check(self) -> None:
        """Raise RecipeError for a subset of no class map."""
        super().check()
        if self.subset and (self.class_map is None or is_order(self.class_map) or not self.labels):
            raise RecipeError("subset", "no class map", "--class-map FILE, with the classes to choose among")
