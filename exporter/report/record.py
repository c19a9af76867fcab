"""The record of a compilation, `report.json`: what was made and measured, and the images that it shows."""

from dataclasses import dataclass, field

from exporter.core.base.machine import Hardware
from exporter.core.base.records import ModelSpec, Pair, Schedule
from exporter.core.schedule.macs import PatchUse
from exporter.core.verify.record import ParityReport
from exporter.measure.benchmark import TradeOff
from exporter.measure.loss import Gain, Tuned
from exporter.measure.quality import Quality
from exporter.measure.speed import Speed
from exporter.report.examples import Example

# Of `report.json` (docs/command-line.md).
VERSION = 5


@dataclass(frozen=True)
class CalibratedOn:
    """The images of a calibration: how many were used, and how many could not be read.

    `overlap` says for each layer how far two halves of the images agree. `skipped` says why an image could not be
    read, by its name; a calibration that was given has the number alone.
    """

    images: int
    skipped_images: int
    overlap: tuple[float, ...] | None = None
    skipped: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    """A compilation: the schedule, both files, whether they agree with PyTorch, what they cost, how fast they are.

    `file_bytes` are the sizes of `files`. `examples` are the images that the page shows.

    `gmacs` are multiply-adds per image in units of 10⁹: of the `dense` and the `pruned` model without what nobody
    reads in the last layer (`ModelSpec.lone_layer`), of the dense one `as_it_came` with it, as papers count, and
    those of `scoring`, which `pruned` includes. Of an a-STAR model they are the useful ones, averaged over images;
    `use` counts the patches that images keep, None under STAR, whose counts are in the schedule.
    `calibration` is None where none was read.

    `measured_on` is "images", or "noise" where none were given: parity, times and what a-STAR keeps are then those
    of noise. `searched` is what a search measured of more models than these two. `tuned` is what fine-tuning
    recorded in the checkpoint: the dense model then has its weights, and what is lost against that one says nothing
    of the model before fine-tuning. `refit` is what refitting the pruned model's weights gained, None where they
    were not to be refitted.
    """

    model: ModelSpec
    target: str
    schedule: Schedule
    files: dict[str, str]
    file_bytes: dict[str, int]
    gmacs: dict[str, float]
    parity: Pair[ParityReport]
    hardware: Hardware
    speed: Speed
    quality: Quality = field(default_factory=Quality)
    use: PatchUse | None = None
    calibration: CalibratedOn | None = None
    examples: tuple[Example, ...] = ()
    measured_on: str = "images"
    searched: TradeOff | None = None
    tuned: Tuned | None = None
    refit: Gain | None = None
    version: int = VERSION

    @property
    def passed(self) -> bool:
        """Whether both lowered models agree with their PyTorch references."""
        return self.parity.dense.passed and self.parity.pruned.passed

    @property
    def saved(self) -> float:
        """Share of the multiply-adds saved of the model as it came."""
        return 1.0 - self.gmacs["pruned"] / self.gmacs["as_it_came"]

    def class_name(self, index: int | None) -> str:
        """Return the name of a class; its index where it has none, "" for None."""
        if index is None:
            return ""
        names = self.model.class_names
        return names[index] if names else str(index)

    def __repr__(self) -> str:
        at = self.speed.at
        faster = ""
        if at is not None:
            faster = f", {at.speed_up.median:.2f} × at batch {at.batch}"
        gmacs = "{dense:.3f} → {pruned:.3f} GMACs".format(**self.gmacs)
        result = "passed" if self.passed else "FAILED"
        how = f"{self.schedule.method}, {self.target}"
        return f"<Report {self.model.name}, {how}: {gmacs}{faster}, parity {result}>"
