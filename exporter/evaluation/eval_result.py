"""The record of an evaluation of one or two models over images."""

from collections.abc import Callable
from dataclasses import dataclass

from exporter.errors import ImageError
from exporter.evaluation.embeddings import Agreement
from exporter.evaluation.intervals import Interval, half_width, images_for, loss_interval, wilson
from exporter.evaluation.loss import PairResult

__all__ = ["Evaluation", "ModelResult", "require_within"]


@dataclass(frozen=True)
class ModelResult:
    """One model's accuracy; None without labels. `interval` is the 95 % interval of top-1 (Wilson), as shares."""

    source: str
    runtime: str
    images: int
    top1: float | None = None
    top5: float | None = None
    interval: Interval | None = None
    top1_hits: int | None = None
    top5_hits: int | None = None


@dataclass(frozen=True)
class Evaluation:
    """The models by name in the order of their runs; `pair` compares the second with the first, None for one.

    `skipped` says why an image was left out, by its name. `scored_classes` is the number of classes that competed.
    `versions` are those of the libraries that ran. Models without classes have an `agreement` of their embeddings
    instead of a `pair`.
    """

    models: dict[str, ModelResult]
    pair: PairResult | None
    images: int
    skipped: dict[str, str]
    scored_classes: int
    versions: dict[str, str]
    agreement: Agreement | None = None

    def __repr__(self) -> str:
        top1 = (
            name if each.top1 is None else f"{name} {each.top1:.2%}" for name, each in self.models.items()
        )
        return f"<Evaluation of {self.images} images: {', '.join(top1)}>"


def require_within(result: Evaluation, points: float) -> None:
    """Check that the 95 % interval is no wider than ± `points`.

    It is that of the loss of two models, of their agreement if there are no labels, of retrieval@1 if there are no
    classes, or of one model's top-1.

    Raises:
        ImageError: It is wider; the message has the number of images that would do, at the measured rates.
    """
    images, (what, interval) = result.images, _estimate(result)
    half = 100 * half_width(interval(images))
    if half > points:
        enough = images_for(interval, points / 100)
        got = f"{what} within ± {half:.3g} points on {images} images"
        raise ImageError("--within", got, f"± {points:g}", f"about {enough:,} images are enough")


def _estimate(result: Evaluation) -> tuple[str, Callable[[int], Interval]]:
    """Return what is estimated, and its interval for a number of images at the measured rates."""
    images, pair = result.images, result.pair
    if result.agreement is not None:
        same = result.agreement.retrieval_at_1 or 0.0
        return "retrieval@1", lambda count: wilson(same * count, count)
    if pair is None:
        (model,) = result.models.values()
        hits = model.top1_hits or 0
        return "top-1", lambda count: wilson(hits * count / images, count)
    if pair.lost is None or pair.gained is None:
        return "the agreement", lambda count: wilson(pair.agreement * count, count)
    lost, gained = pair.lost / images, pair.gained / images
    return "the loss", lambda count: loss_interval(lost * count, gained * count, count)
