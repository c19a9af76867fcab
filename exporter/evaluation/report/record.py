"""The record of a compilation, `report.json`: the images that it shows, the versions that it depends on."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from exporter.data.images import UNKNOWN, ranked
from exporter.evaluation.accuracy import Accuracy, Predictions
from exporter.evaluation.benchmark import Comparison, Hardware, Throughput
from exporter.evaluation.benchmark.batch_sweep import AtBatch
from exporter.evaluation.benchmark.timing import TradeOff
from exporter.evaluation.embeddings import Agreement
from exporter.evaluation.loss import PairResult
from exporter.evaluation.parity import ParityReport
from exporter.records import Pair, Schedule
from exporter.schedule.macs import PatchUse

__all__ = ["Example", "Gmacs", "Report", "chosen_examples", "installed_versions"]

Array = np.ndarray[Any, Any]

# Images on the page.
SHOWN = 12


@dataclass(frozen=True)
class Example:
    """An image of the report: its name below the folder, its class if it is known, and both predictions."""

    image: str
    label: int | None
    dense: int
    pruned: int

    @property
    def differs(self) -> bool:
        """Whether both models give it different classes."""
        return self.dense != self.pruned


def chosen_examples(
    names: Sequence[str], found: Pair[Predictions], count: int = SHOWN
) -> tuple[Example, ...]:
    """Choose at most `count` images.

    At most half of them are images on which both models disagree; the others are stratified over the classes, by
    the label where it is known, else by the dense model's class. The same predictions give the same choice.

    Args:
        names: Of all images, in the order of the predictions.
        found: The predictions of both models.
        count: Number of images to choose.
    """
    labels = found.dense.labels
    dense, pruned = found.dense.best[:, 0], found.pruned.best[:, 0]
    order = _by_turns(np.where(labels == UNKNOWN, dense, labels))
    differing = [at for at in order if dense[at] != pruned[at]]
    same = [at for at in order if dense[at] == pruned[at]]
    most = max(count // 2, count - len(same))
    shown = differing[:most] + same[: count - min(most, len(differing))]
    return tuple(
        Example(
            names[at],
            None if labels[at] == UNKNOWN else int(labels[at]),
            dense=int(dense[at]),
            pruned=int(pruned[at]),
        )
        for at in shown
    )


def _by_turns(classes: Array) -> list[int]:
    """Return the places of all images: the first of each class, then the second of each, and so on.

    The order of the classes is drawn, so that a few of many classes are not the first few.
    """
    present = np.unique(classes).tolist()
    place = {present[at]: turn for turn, at in enumerate(ranked(len(present), "examples"))}
    seen: Counter[int] = Counter()
    keys = []
    for each in classes.tolist():
        keys.append((seen[each], place[each]))
        seen[each] += 1
    return sorted(range(len(keys)), key=keys.__getitem__)


LIBRARIES = (
    "star-export",
    "torch",
    "timm",
    "onnx",
    "onnxscript",
    "onnx-graphsurgeon",
    "onnxruntime",
    "numpy",
)


def installed_versions() -> dict[str, str]:
    """Return the versions, by name, of the installed libraries that a compilation uses."""
    found = {}
    for library in LIBRARIES:
        try:
            found[library] = version(library)
        except PackageNotFoundError:
            continue
    return found


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
