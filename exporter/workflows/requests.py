"""What the steps of a compilation are told: small records, of which a recipe is the flat union."""

from dataclasses import dataclass, field
from pathlib import Path

from exporter.calibration.settings import CalibrationSettings
from exporter.errors import RecipeError
from exporter.evaluation.benchmark.timing import LEAST_ROUNDS
from exporter.settings import Natural, Positive, Settings, option
from exporter.targets import ONNXRUNTIME, Target
from exporter.vocabulary import InputKind, Layout

__all__ = ["CalibrationSource", "Images", "Lowering", "Measuring"]


@dataclass(frozen=True, kw_only=True)
class Images(Settings):
    """Which images a calibration, a comparison and a measurement take."""

    images: Path | None = option(None, "A folder of images, or one folder a class, to calibrate on.")
    eval_images: Path | None = option(None, "Images to compare and measure on; the calibration's by default.")
    class_map: Path | None = option(None, "JSON: folder name to class index, where sorted order is not it.")
    max_images: Positive = option(512, "At most so many images for calibration, drawn by the seed.")
    max_eval_images: Positive = option(1000, "At most so many images for accuracy, drawn by the seed.")
    check_images: Positive = option(64, "Number of images for parity and for reference.npz.")
    seed: Natural = option(0, "Seed of every draw.")


@dataclass(frozen=True, kw_only=True)
class Measuring(Settings):
    """How speed is measured."""

    batch: Positive = option(8, "Images per run in the throughput comparison.")
    rounds: Natural = option(20, "Rounds of the throughput comparison; 0 leaves it out.")
    threads: Natural = option(0, "CPU threads of the runtime; 0 is one a physical core.")

    def check(self) -> None:
        """Raise RecipeError for a quartile of too few rounds."""
        super().check()
        if 0 < self.rounds < LEAST_ROUNDS:
            raise RecipeError("rounds", str(self.rounds), f"0, or at least {LEAST_ROUNDS} for quartiles")


@dataclass(frozen=True)
class CalibrationSource:
    """A calibration from a file, interpolated to another input size where that is allowed; or how one is made."""

    path: Path | None = None
    interpolate: bool = False
    settings: CalibrationSettings = field(default_factory=CalibrationSettings)


@dataclass(frozen=True)
class Lowering:
    """What a model is lowered for; `layout` is how a-STAR's tokens lie in a batch."""

    target: Target = ONNXRUNTIME
    layout: Layout = Layout.SHRINKING
    input_kind: InputKind = InputKind.FLOAT32
