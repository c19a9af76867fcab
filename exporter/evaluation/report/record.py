"""The record of a compilation, `report.json`."""

from dataclasses import dataclass, field

from exporter.evaluation.accuracy import Accuracy
from exporter.evaluation.benchmark import Comparison, Hardware, Throughput
from exporter.evaluation.benchmark.batch_sweep import AtBatch
from exporter.evaluation.benchmark.points import TradeOff
from exporter.evaluation.embeddings import Agreement
from exporter.evaluation.loss import PairResult
from exporter.evaluation.parity import ParityReport
from exporter.evaluation.report.examples import Example
from exporter.records import Pair, Schedule
from exporter.schedule.usage import PatchUse

__all__ = ["Gmacs", "Report"]


@dataclass(frozen=True)
class Gmacs:
    """Multiply-adds per image in units of 10⁹; `pruned` includes `scoring`.

    Where they depend on the image, `pruned` is the mean and `most` the largest; else `most` is None.
    """

    dense: float
    pruned: float
    scoring: float
    most: float | None = None

    @property
    def saved(self) -> float:
        """Share of the dense model's multiply-adds that pruning saves."""
        return 1.0 - self.pruned / self.dense


@dataclass(frozen=True)
class Report:
    """A compilation. `accuracy` and `agreement` are None where there is nothing to measure them by.

    Times are None if they were not measured. `batches` are the times at every batch size, `trade_off`
    the speed and the loss of several models, at least of both. `pair` compares the classes of both models, and
    `examples` are the images that the page shows, with the model's `class_names`. `file_bytes` are the sizes of
    `files`.

    For an a-STAR model `gmacs` are the useful MACs, averaged over images; `use` counts the patches that images
    keep, None under STAR. `reduce` says what became of the other patches: they were dropped, or merged.

    `passed` says whether both lowered models agree with their PyTorch references. `speedup` and `efficiency` are
    those of `comparison`, at `batch` images per run. `measured_on` is "images", or "noise" where none were given:
    parity, times and what a-STAR keeps are then those of noise. `calibration_overlap` says for each layer how far
    two halves of the calibration's images agree.

    `skipped` says why an image to measure on could not be read, by its name; `calibration_skipped` says the same of
    those to calibrate on, whose number is `skipped_images`. A calibration that was given has the number alone.
    """

    model: str
    method: str
    reduce: str
    rho: float | None
    target: str
    files: dict[str, str]
    schedule: Schedule
    gmacs: Gmacs
    parity: ParityReport
    dense_parity: ParityReport
    accuracy: Pair[Accuracy] | None
    throughput: Pair[Throughput] | None
    comparison: Comparison | None
    use: PatchUse | None
    passed: bool
    speedup: float | None
    efficiency: float | None
    batch: int
    calibration_images: int
    skipped_images: int
    versions: dict[str, str]
    hardware: Hardware
    calibration_overlap: tuple[float, ...] | None = None
    agreement: Agreement | None = None
    batches: tuple[AtBatch, ...] = ()
    trade_off: TradeOff | None = None
    pair: PairResult | None = None
    examples: tuple[Example, ...] = ()
    class_names: tuple[str, ...] = ()
    file_bytes: dict[str, int] = field(default_factory=dict)
    measured_on: str = "images"
    skipped: dict[str, str] = field(default_factory=dict)
    calibration_skipped: dict[str, str] = field(default_factory=dict)

    def class_name(self, index: int | None) -> str:
        """Return the name of a class; its index where it has none, "" for None."""
        if index is None:
            return ""
        return self.class_names[index] if self.class_names else str(index)

    def __repr__(self) -> str:
        rho = "" if self.rho is None else f", rho {self.rho:.4g}"
        faster = "" if self.speedup is None else f", {self.speedup:.2f} × at batch {self.batch}"
        gmacs = f"{self.gmacs.dense:.3f} → {self.gmacs.pruned:.3f} GMACs"
        result = "passed" if self.passed else "FAILED"
        return f"<Report {self.model}, {self.method}{rho}, {self.target}: {gmacs}{faster}, parity {result}>"
