"""Speed against loss of the models of reports."""

from collections.abc import Sequence
from dataclasses import replace

from exporter.measure.benchmark import TradeOff, TradePoint, front_of
from exporter.report.record import Report


def trade_off_of(reports: Sequence[Report]) -> TradeOff | None:
    """Return what a single report's search measured; else speed and loss of models that were measured in one run.

    None where either is missing.
    """
    first, alone = reports[0], len(reports) == 1
    if alone and first.searched is not None:
        return first.searched
    points = []
    for report in reports:
        pair = report.quality.loss
        at = report.speed.at
        rho = report.schedule.rho
        if at is None or pair is None or pair.loss_points is None:
            return None
        method = str(report.schedule.method)
        label = f"{method}, rho {rho:.4g}" if alone and rho is not None else method
        rate = at.throughput.pruned.images_per_s
        points.append(
            TradePoint(label, rate, pair.loss_points, pair.loss_interval_points)
        )
        dense = at.throughput.dense.images_per_s
        images = pair.images
    unpruned = TradePoint("unpruned", dense, first.quality.precision_loss)
    front = front_of([unpruned, *points])
    points = [replace(point, front=point in front) for point in points]
    return TradeOff(
        first.speed.batch,
        "top1",
        images,
        {first.target: dense},
        tuple(points),
        unpruned_loss=unpruned.loss_points,
    )
