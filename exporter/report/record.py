"""The record of a compilation, `report.json`: what was made and measured, and the images that it shows."""

from dataclasses import dataclass, field

from exporter.core.base.machine import Hardware
from exporter.core.base.records import Gain, ModelSpec, Pair, Schedule
from exporter.core.schedule.macs import PatchUse
from exporter.core.verify.record import ParityReport
from exporter.measure.accuracy import Accuracy
from exporter.measure.batch_sweep import AtBatch
from exporter.measure.benchmark import TradeOff
from exporter.measure.likeness import Agreement, Deviations
from exporter.measure.loss import PairResult, Tuned
from exporter.report.examples import Example

# Of `report.json` (docs/command-line.md).
VERSION = 4


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

    What there is nothing to measure by is None: `accuracy` and `pair` without labels and logits, `agreement`, of
    the pruned model's embeddings with the dense one's, without an embedding, `deviations` without a head of labels
    or values. `batches` are the times at every batch size, none where no rounds were asked for; `batch` is that of
    the settings. `pair` compares the classes of both models; `fp32_losses` are those of both against the model in
    fp32, in PyTorch, whose accuracy is `fp32_accuracy`: None where the target computes in fp32, since its dense
    model is that one, to rounding. `examples` are the images that the
    page shows. `file_bytes` are the sizes of `files`.

    `gmacs` are multiply-adds per image in units of 10⁹: of the `dense` and the `pruned` model without what nobody
    reads in the last layer (`ModelSpec.lone_layer`), of the dense one `as_it_came` with it, as papers count, and
    those of `scoring`, which `pruned` includes. Of an a-STAR model they are the useful ones, averaged over images;
    `use` counts the patches that images keep, None under STAR, whose counts are in the schedule.
    `calibration` is None where none was read.

    `measured_on` is "images", or "noise" where none were given: parity, times and what a-STAR keeps are then those
    of noise. `skipped` says why an image to measure on could not be read, by its name. `searched` is what a search
    measured of more models than these two. `tuned` is what fine-tuning recorded in the checkpoint: the dense model
    then has its weights, and what is lost against that one says nothing of the model before fine-tuning. `refit`
    is what refitting the pruned model's weights gained, None where they were not to be refitted. `timed_at` is
    the day and the hour in UTC, and `command` what was typed, "" where it was none, or where no speed was measured:
    the same inputs then give the same report.
    """

    model: ModelSpec
    target: str
    schedule: Schedule
    files: dict[str, str]
    file_bytes: dict[str, int]
    gmacs: dict[str, float]
    parity: Pair[ParityReport]
    hardware: Hardware
    batch: int
    batches: tuple[AtBatch, ...] = ()
    accuracy: Pair[Accuracy] | None = None
    pair: PairResult | None = None
    fp32_accuracy: Accuracy | None = None
    fp32_losses: Pair[PairResult] | None = None
    agreement: Agreement | None = None
    deviations: Deviations | None = None
    use: PatchUse | None = None
    calibration: CalibratedOn | None = None
    examples: tuple[Example, ...] = ()
    measured_on: str = "images"
    skipped: dict[str, str] = field(default_factory=dict)
    searched: TradeOff | None = None
    tuned: Tuned | None = None
    refit: Gain | None = None
    timed_at: str = ""
    command: str = ""
    version: int = VERSION

    @property
    def passed(self) -> bool:
        """Whether both lowered models agree with their PyTorch references."""
        return self.parity.dense.passed and self.parity.pruned.passed

    @property
    def saved(self) -> float:
        """Share of the multiply-adds saved of the model as it came."""
        return 1.0 - self.gmacs["pruned"] / self.gmacs["as_it_came"]

    @property
    def speed(self) -> AtBatch | None:
        """The times at the batch size of the settings."""
        measured = {at_batch.batch: at_batch for at_batch in self.batches}
        return measured.get(self.batch)

    @property
    def pays(self) -> bool:
        """Whether pruning is faster than the unpruned export at the settings' batch size, and slower at none."""
        outcomes = [at.speed_up.outcome for at in self.batches]
        is_faster = self.speed is None or self.speed.speed_up.outcome == "faster"
        return is_faster and "slower" not in outcomes

    @property
    def loss(self) -> PairResult | None:
        """What the pruned model loses against the model in fp32."""
        return self.pair if self.fp32_losses is None else self.fp32_losses.pruned

    @property
    def likeness(self) -> Agreement | Deviations | None:
        """How a model without classes agrees with the dense one."""
        return self.deviations or self.agreement

    @property
    def precision_loss(self) -> float:
        """Points of top-1 that the dense model loses by the target's precision alone."""
        if self.fp32_losses is None:
            return 0.0
        return self.fp32_losses.dense.loss_points or 0.0

    @property
    def is_worse(self) -> bool:
        """Whether a loss is shown, or that an embedding, a label or a value is far from the dense model's."""
        if self.loss is not None:
            return self.loss.is_loss
        return self.likeness is not None and not self.likeness.is_near

    def class_name(self, index: int | None) -> str:
        """Return the name of a class; its index where it has none, "" for None."""
        if index is None:
            return ""
        names = self.model.class_names
        return names[index] if names else str(index)

    def __repr__(self) -> str:
        at = self.speed
        faster = ""
        if at is not None:
            faster = f", {at.speed_up.median:.2f} × at batch {at.batch}"
        gmacs = "{dense:.3f} → {pruned:.3f} GMACs".format(**self.gmacs)
        result = "passed" if self.passed else "FAILED"
        how = f"{self.schedule.method}, {self.target}"
        return f"<Report {self.model.name}, {how}: {gmacs}{faster}, parity {result}>"
