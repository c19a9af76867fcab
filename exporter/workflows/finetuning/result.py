"""The result of fine-tuning: top-1 of the unpruned model, and of the pruned one before and after."""

from collections.abc import Mapping
from dataclasses import dataclass

from exporter.evaluation.accuracy import Predictions
from exporter.evaluation.intervals import Interval
from exporter.evaluation.loss import PairResult, Recovery, compare_predictions, recovery_of
from exporter.records import ModelSpec, Schedule
from exporter.schedule.macs import dense_macs
from exporter.training.settings import FinetuneSettings

__all__ = ["FinetuneResult", "Trained", "result_of"]


@dataclass(frozen=True)
class Trained:
    """The file of the weights, the number of training images, and the reasons of those that cannot be read."""

    file: str
    images: int
    skipped: dict[str, str]
    settings: FinetuneSettings
    processes: int


@dataclass(frozen=True)
class FinetuneResult:
    """Top-1 as shares with 95 % intervals (Wilson), on `images` images that no choice has read.

    `gmacs_pruned` are those of an image before training, under a-STAR the mean over a batch of training images.

    `skipped` has the reasons of the images to measure on that could not be read, by name.

    `loss_before` and `loss_after` compare the pruned model with the unpruned one, before and after training;
    `recovery` says how much of the loss was won back.
    """

    model: str
    method: str
    reduce: str
    rho: float | None
    gmacs_dense: float
    gmacs_pruned: float
    images: int
    top1_dense: float
    top1_before: float
    top1_after: float
    interval_dense: Interval
    interval_before: Interval
    interval_after: Interval
    loss_before: PairResult
    loss_after: PairResult
    recovery: Recovery
    trained: Trained
    skipped: dict[str, str]

    def __repr__(self) -> str:
        top1 = f"{self.top1_before:.2%} → {self.top1_after:.2%}, unpruned {self.top1_dense:.2%}"
        return f"<FinetuneResult {self.model}, {self.method}: {top1}>"


def result_of(
    spec: ModelSpec,
    schedule: Schedule,
    pruned_macs: float,
    trained: Trained,
    *,
    dense: Predictions,
    before: Predictions,
    after: Predictions,
    class_names: Mapping[int, str],
    skipped: dict[str, str],
) -> FinetuneResult:
    """Compare the predictions of the three models for the same labelled images; `skipped` could not be read."""
    accuracies = [each.accuracy for each in (dense, before, after)]
    return FinetuneResult(
        model=spec.name,
        method=schedule.method,
        reduce=schedule.reduce,
        rho=schedule.rho,
        gmacs_dense=dense_macs(spec).gmacs,
        gmacs_pruned=pruned_macs / 1e9,
        images=len(dense.labels),
        top1_dense=accuracies[0].top1,
        top1_before=accuracies[1].top1,
        top1_after=accuracies[2].top1,
        interval_dense=accuracies[0].interval,
        interval_before=accuracies[1].interval,
        interval_after=accuracies[2].interval,
        loss_before=compare_predictions(dense, before, ("dense", "before"), class_names),
        loss_after=compare_predictions(dense, after, ("dense", "after"), class_names),
        recovery=recovery_of(dense.hits[:, 0], before.hits[:, 0], after.hits[:, 0]),
        trained=trained,
        skipped=skipped,
    )
