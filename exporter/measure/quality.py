"""How good a pruned model's answers are beside those of the dense one, on the same images."""

from dataclasses import dataclass, field

from exporter.core.base.records import Pair
from exporter.measure.accuracy import Accuracy, Predictions
from exporter.measure.likeness import Agreement, Deviations
from exporter.measure.loss import PairResult, compare_predictions


@dataclass(frozen=True)
class Quality:
    """What the answers of both models say; what there is nothing to measure by is None.

    `accuracy` needs labels, `pair`, which compares the classes of both models, logits. `fp32_losses` are the
    losses of both against the model in fp32, in PyTorch, whose accuracy is `fp32_accuracy`: None where the target
    computes in fp32, since its dense model is that one, to rounding. `agreement` is of embeddings, `deviations` are
    of a head of labels or values. `skipped` says why an image could not be read, by its name.
    """

    accuracy: Pair[Accuracy] | None = None
    pair: PairResult | None = None
    fp32_accuracy: Accuracy | None = None
    fp32_losses: Pair[PairResult] | None = None
    agreement: Agreement | None = None
    deviations: Deviations | None = None
    skipped: dict[str, str] = field(default_factory=dict)

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


def quality_of(
    dense: Predictions,
    pruned: Predictions,
    fp32: Predictions | None,
    skipped: dict[str, str],
) -> Quality:
    """Compare the classes that models give the same images; without `fp32` the dense model is the one in fp32."""
    accuracy, fp32_accuracy, losses = None, None, None
    if dense.labelled:
        accuracy = Pair(dense.accuracy, pruned.accuracy)
    if fp32 is not None:
        fp32_accuracy = fp32.accuracy if fp32.labelled else None
        losses = Pair(
            compare_predictions(fp32, dense, ("fp32", "dense")),
            compare_predictions(fp32, pruned, ("fp32", "pruned")),
        )
    return Quality(
        accuracy,
        compare_predictions(dense, pruned, ("dense", "pruned")),
        fp32_accuracy,
        losses,
        skipped=skipped,
    )
