"""The settings of an evaluation."""

from dataclasses import dataclass

from exporter.core.base.errors import RecipeError
from exporter.core.base.files import GivenPath
from exporter.core.base.settings import (
    Batch,
    Natural,
    Points,
    Positive,
    Settings,
    option,
)
from exporter.core.base.shared_settings import class_map_option
from exporter.data.class_map import is_order

# Images of a run, the same in every verb that counts answers; a larger batch gains nothing on a CPU.
BATCH = 32


@dataclass(frozen=True, kw_only=True)
class EvalSettings(Settings):
    """Which images count, and how they are run."""

    class_map: GivenPath = class_map_option()
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
    batch: Batch = option(
        BATCH,
        "Images per run, one of a file whose ranges come from each batch; an engine takes only the batch sizes "
        "that it was built for.",
        group="measurement",
    )
    within: Points | None = option(
        None,
        "Fail if the 95 % interval of the loss (or of one model's top-1, or of the same nearest image, both "
        "re-indexed) is wider than ± so many percentage points.",
        group="measurement",
    )

    def check(self) -> None:
        """Raise RecipeError for a subset of no class map."""
        super().check()
        if self.subset and (
            self.class_map is None or is_order(self.class_map) or not self.labels
        ):
            raise RecipeError(
                "subset",
                "no class map",
                "--class-map FILE, with the classes to choose among",
            )
