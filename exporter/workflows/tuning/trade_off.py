"""Speed against accuracy of several models: of a sweep over rho, or of a search."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from exporter.data.images import ImageFolder
from exporter.evaluation.benchmark.timing import RhoSweep, TradeOff, TradePoint
from exporter.evaluation.intervals import loss_interval
from exporter.files import written_beside
from exporter.workflows.tuning.accuracy import AccuracyMeter
from exporter.workflows.tuning.axes import UNPRUNED, Candidate
from exporter.workflows.tuning.bench import Bench
from exporter.workflows.tuning.halving import front, loss_of
from exporter.workflows.tuning.result import Tuned

__all__ = ["save_trade_off_chart", "trade_off_of_search", "trade_off_of_sweep"]

Array = np.ndarray[Any, Any]


def trade_off_of_sweep(
    bench: Bench, candidates: Sequence[Candidate], sweep: RhoSweep, folder: ImageFolder
) -> TradeOff | None:
    """Measure what each candidate of a sweep loses on the images; None for models without classes.

    Without labels, an image counts as lost where a candidate gives it another class than the unpruned model.
    """
    if not bench.vit.spec.num_classes:
        return None
    target, metric = bench.job.lowering.target.name, "top1" if folder.labelled else "agreement"
    meter = AccuracyMeter(bench, folder, metric)
    dense = meter.right(UNPRUNED.on(target))
    own = [meter.right(each.on(target)) for each in candidates]
    losses = [_loss(dense, each) for each in own]
    times = {at: -point.throughput.images_per_s for at, point in enumerate(sweep.points)}
    best = front(times, lambda at: losses[at][0], times)
    points = tuple(
        TradePoint(f"rho {point.rho:.4g}", -times[at], *losses[at], front=at in best)
        for at, point in enumerate(sweep.points)
    )
    return TradeOff(sweep.batch, metric, len(dense), {target: sweep.dense.images_per_s}, points)


def trade_off_of_search(found: Tuned, batch: int) -> TradeOff:
    """Return every measured point of a search, with the loss on the search half.

    Its interval is two standard errors to each side.
    """
    points = tuple(
        TradePoint(
            each.candidate.label,
            each.images_per_s,
            each.loss_points,
            (2 * each.loss_points - each.margin_points, each.margin_points),
            front=each in found.front,
        )
        for each in found.tried
    )
    unpruned = {each.target: each.images_per_s for each in found.dense}
    return TradeOff(batch, str(found.metric), found.images_search, unpruned, points)


def save_trade_off_chart(trade_off: TradeOff, model: str, path: Path) -> None:
    """Draw the chart as a PNG.

    Raises:
        OutputError: The file cannot be written.
    """
    from exporter.evaluation.report.chart import trade_off_chart  # noqa: PLC0415  (matplotlib is slow to load)

    content = trade_off_chart(trade_off, model)
    with written_beside(path) as partial:
        partial.write_bytes(content)


def _loss(dense: Array, own: Array) -> tuple[float, tuple[float, float]]:
    """Return the loss in points and its 95 % interval; bool [images] says what each model has right."""
    lost, gained = loss_of(dense, own)
    low, high = loss_interval(lost, gained, len(dense))
    return 100 * (lost - gained) / len(dense), (100 * low, 100 * high)
