"""The settings of the steps of a compilation: small records; a recipe is their flat union."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from exporter.calibration.settings import CalibrationSettings
from exporter.evaluation.benchmark.timing import LEAST_ROUNDS
from exporter.files import NO_PATH, GivenPath
from exporter.settings import Count, Natural, Positive, Settings, Threads, option
from exporter.targets import ONNXRUNTIME, Target
from exporter.vocabulary import InputKind, Layout

if TYPE_CHECKING:
    from exporter.calibration.record import Calibration

__all__ = ["CalibrationSource", "Images", "Lowering", "Measuring"]


@dataclass(frozen=True, kw_only=True)
class Images(Settings):
    """The images for calibration, comparison and measurement."""

    images: GivenPath = option(
        None,
        "Images to calibrate, train or compare on: a folder of images, or of one folder per class.",
        group="images",
    )
    eval_images: GivenPath = option(
        None, "Images to check and measure on; by default those of --images.", group="images"
    )
    class_map: GivenPath = option(
        None,
        "JSON file that maps folder names to class indices; or sorted (as torchvision) or natural (as timm), an "
        "order of the folders. By default, the model's names of its classes decide, else the only order there is.",
        group="images",
    )
    max_images: Count = option(
        512,
        "Largest number of images for calibration, drawn at random by the seed. auto: 64 images, then twice as "
        "many, until both halves of them agree on 0.9 of the patches in every layer; at most 2048.",
        group="images",
    )
    max_eval_images: Positive = option(
        1000, "Largest number of images for accuracy, drawn at random by the seed.", group="images"
    )
    check_images: Positive = option(
        64, "Number of images for the parity check and reference.npz.", flag=False
    )
    seed: Natural = option(0, "Seed of all random draws.", flag=False)


@dataclass(frozen=True, kw_only=True)
class Measuring(Settings):
    """How speed is measured."""

    batch: Positive = option(8, "Images per run in the throughput comparison.", group="measurement")
    more_batches: tuple[Positive, ...] = option(
        (1, 4),
        "More batch sizes to measure, for the table of batch sizes in the report.",
        group="measurement",
        flag=False,
    )
    rounds: Natural = option(
        20, "Rounds of the throughput comparison; 0: no comparison.", group="measurement"
    )
    threads: Threads = option(0, "CPU threads of the runtime; 0: one per physical core.", group="measurement")

    def check(self) -> None:
        """Raise RecipeError if there are too few rounds for quartiles."""
        super().check()
        enough = self.rounds == 0 or self.rounds >= LEAST_ROUNDS
        self.require("rounds", enough, f"0, or at least {LEAST_ROUNDS} for quartiles")


@dataclass(frozen=True)
class CalibrationSource:
    """A calibration file, interpolated to another input size if `interpolate`, or the one in a checkpoint.

    Where there is neither, one is made by the settings.
    """

    path: GivenPath = NO_PATH
    interpolate: bool = False
    settings: CalibrationSettings = field(default_factory=CalibrationSettings)
    restored: "Calibration | None" = None

    def __post_init__(self) -> None:
        """Make a path of text."""
        if self.path is not None:
            object.__setattr__(self, "path", Path(self.path))

    @property
    def exists(self) -> bool:
        """Whether there is a calibration to read."""
        return self.path is not None or self.restored is not None


@dataclass(frozen=True)
class Lowering:
    """The target, the layout of a-STAR's tokens in a batch, and the input of a lowered model."""

    target: Target = ONNXRUNTIME
    layout: Layout = Layout.SHRINKING
    input_kind: InputKind = InputKind.FLOAT32
