"""Records of several models measured in one run: their speed, and what they lose."""

from dataclasses import dataclass

from exporter.evaluation.proportions import Interval

__all__ = ["TradeOff", "TradePoint"]


@dataclass(frozen=True)
class TradePoint:
    """A model's speed, and what it loses against the unpruned model in points, with its 95 % interval if known.

    `front`: no other model measured with it is both as fast and as accurate.
    """

    label: str
    images_per_s: float
    loss_points: float
    interval_points: Interval | None = None
    front: bool = False


@dataclass(frozen=True)
class TradeOff:
    """Speed against accuracy: the unpruned model by target in images per second, and the models that were measured.

    `metric` is what the points count: "top1" or "agreement"; `images` is the number of images.
    """

    batch: int
    metric: str
    images: int
    unpruned: dict[str, float]
    points: tuple[TradePoint, ...]
