"""Reports of compilations that never were."""

from dataclasses import replace
from typing import Any

import numpy as np

from exporter.core.base.machine import environment
from exporter.core.base.records import Pair
from exporter.measure.accuracy import Accuracy, Predictions
from exporter.measure.batch_sweep import AS_IT_CAME, AtBatch
from exporter.measure.benchmark import Throughput, TradeOff, TradePoint
from exporter.measure.loss import compare_predictions
from exporter.measure.quality import Quality
from exporter.measure.speed import Speed
from exporter.report.examples import Example
from exporter.report.record import Report
from tests.core.verify.models import compared, images, pruned_family
from tests.folders import artefacts


def small_report() -> Report:
    """Without labels and times."""
    parity = compared(pruned_family(), images(2))
    return Report(
        model=replace(artefacts().pruned.spec, name="<vit>"),
        target="onnxruntime-fp32",
        schedule=artefacts().pruned.schedule,
        files={"dense": "d.onnx", "pruned": "p.onnx"},
        file_bytes={"dense": 22_000_000, "pruned": 22_100_000},
        gmacs={"dense": 4.0, "pruned": 3.0, "scoring": 0.5, "as_it_came": 4.25},
        parity=Pair(parity, parity),
        hardware=environment(),
        speed=Speed(8),
    )


def full_report() -> Report:
    """With accuracy, times at three batch sizes, also of the model as it came, examples and a trade-off."""
    labels = np.arange(100) % 3
    best = np.stack([labels, (labels + 1) % 3], axis=1)
    dense = Predictions(best, labels)
    pruned = Predictions(np.where(labels == 2, best.T[::-1], best.T).T, labels)
    batches = tuple(
        AtBatch.of(
            {
                "dense": times(10.0 * each, each),
                "pruned": times(6.0 * each, each),
                AS_IT_CAME: times(11.0 * each, each),
            },
            4 / 3,
        )
        for each in (1, 4, 8)
    )
    report = small_report()
    names = ("cat", "dog", "a very long name of a class")
    return replace(
        report,
        model=replace(report.model, class_names=names),
        quality=Quality(
            accuracy=Pair(
                *(
                    Accuracy.of(top1_hits=hits, top5_hits=100, images=100)
                    for hits in (90, 85)
                )
            ),
            pair=compare_predictions(dense, pruned, ("dense", "pruned"), {}),
        ),
        speed=Speed(8, batches),
        examples=(
            Example("cat/<1>.png", 0, dense=0, pruned=2),
            Example("dog/2.png", 1, dense=1, pruned=1),
        ),
        searched=trade_off(),
    )


def timed(report: Report, *batches: AtBatch) -> Report:
    """The same with other times."""
    return replace(report, speed=replace(report.speed, batches=batches))


def judged(report: Report, **quality: Any) -> Report:
    """The same of another quality."""
    return replace(report, quality=replace(report.quality, **quality))


def times(ms: float, batch: int = 8) -> Throughput:
    """Rounds around a median."""
    rounds = tuple(ms * factor for factor in (0.9, 0.95, 1.0, 1.05, 1.1))
    return Throughput(batch, 1e3 * batch / ms, ms, 1.1 * ms, rounds)


def at(batch: int, pruned_ms: float, dense_ms: float = 10.0) -> AtBatch:
    """The model as it came takes 25 ms."""
    measured = {
        "dense": times(dense_ms, batch),
        "pruned": times(pruned_ms, batch),
        AS_IT_CAME: times(25.0, batch),
    }
    return AtBatch.of(measured, 4 / 3)


def slower_report() -> Report:
    """A model for which pruning does not pay, though it is faster than as it came."""
    return replace(timed(full_report(), at(8, 12.5)), searched=None)


def trade_off() -> TradeOff:
    """Three points, two of them on the front."""
    points = (
        TradePoint("rho 0.9", 94.0, 0.1, (-0.3, 0.5), front=True),
        TradePoint("rho 0.7", 133.0, 1.2, (0.4, 2.0), front=True),
        TradePoint("rho 0.5", 120.0, 4.0),
    )
    return TradeOff(8, "top1", 1000, {"onnxruntime-fp32": 80.0}, points)
