r"""Measure peers beside each other on ONNX Runtime: dense, INT8, matching, ToMe, STAR. Markdown on stdout, a chart.

    star-export calibrate --model cifar_vit --images cifar10/train --out build/cifar_vit.safetensors
    python benchmarks/peers.py --model cifar_vit --images cifar10/train --eval-images cifar10/test \
        --calibration build/cifar_vit.safetensors --rounds 40 --out build/peers --chart docs/images/peers.png

All models are timed interleaved in one run. Top-1 is that of the lowered models on the runtime that serves them.
Measurements are kept in --out: a second call repeats none.
"""

import argparse
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from exporter.cli.flags import add_recipe, recipe_of
from exporter.cli.output import RichStages
from exporter.cli.setting_flags import add_flags
from exporter.core.base.intervals import loss_interval, wilson
from exporter.core.base.targets import ONNXRUNTIME, ONNXRUNTIME_INT8
from exporter.core.base.vocabulary import Method
from exporter.core.schedule.prune import Prune
from exporter.jobs.network import Network
from exporter.jobs.opened import open_recipe
from exporter.jobs.recipe import Recipe
from exporter.measure.benchmark import Ratio, TradeOff, TradePoint, ratio_of
from exporter.measure.loss import loss_of
from exporter.report.chart import trade_off_chart
from exporter.tuning.book import Book
from exporter.tuning.choice import Timed, TuneSettings
from exporter.tuning.search import Search
from exporter.tuning.ways import OWN, UNPRUNED, Candidate

Array = np.ndarray[Any, Any]
FP32, INT8 = ONNXRUNTIME.name, ONNXRUNTIME_INT8.name


def _saving(share: float, method: Method = Method.MATCHING) -> Candidate:
    return Candidate(Prune(method=method, mac_reduction=share))


# How tables and charts name a way (with the share of multiply-adds saved), and the targets it is measured on.
PEERS: Sequence[tuple[str, Candidate, tuple[str, ...]]] = (
    ("dense", UNPRUNED, (FP32, INT8)),
    ("matching 20 %", _saving(0.2), (FP32,)),
    ("matching 40 %", _saving(0.4), (FP32, INT8)),
    ("matching 60 %", _saving(0.6), (FP32, INT8)),
    ("ToMe 20 %", _saving(0.2, Method.TOME), (FP32,)),
    ("ToMe 40 %", _saving(0.4, Method.TOME), (FP32, INT8)),
    ("STAR 20 %", _saving(0.2, Method.STAR), (FP32,)),
    ("STAR 40 %", _saving(0.4, Method.STAR), (FP32, INT8)),
)
COLUMNS = (
    "model",
    "GMACs",
    "top-1",
    "95 %",
    "points lost",
    "95 %",
    "img/s",
    "speed-up",
    "quartiles",
    "MB",
)
FLAGS = (
    "model",
    "images",
    "eval_images",
    "max_eval_images",
    "calibration",
    "batch",
    "rounds",
)


@dataclass(frozen=True, eq=False)
class Row:
    """A model: which images it has right, its multiply-adds, its time, and dense fp32 time divided by it."""

    name: str
    gmacs: float
    hits: Array
    timed: Timed
    ratio: Ratio


def main() -> int:
    """Measure, print the table, draw the chart."""
    options, stages = _options(), RichStages()
    logging.disable(logging.WARNING)  # silences the quantizer
    variant = open_recipe(recipe_of(options, {"images": {"max_eval_images": 100_000}}))
    network = variant.network
    options.out.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as scratch:
        search = Search(
            {OWN: variant},
            (),
            TuneSettings(max_drop=1.0),
            Book(options.out / "measurements.jsonl", ""),
            {"all": network.evaluated},
            options.out,
            Path(scratch),
        )
        with stages.stage("speed"):
            rows = _timed(search, stages)
    _print(rows, network)
    if options.chart:
        options.chart.write_bytes(
            trade_off_chart(
                _trade_off(rows, network.recipe.measure.batch), network.vit.spec.name
            )
        )
    return 0


def _timed(search: Search, stages: RichStages) -> list[Row]:
    placed = [
        (name, candidate.on(target))
        for name, candidate, targets in PEERS
        for target in targets
    ]
    times = search.speeds([candidate for _, candidate in placed])
    base = times[UNPRUNED.on(FP32)]
    rows = []
    for name, candidate in placed:
        label = f"{name}, INT8" if candidate.target == INT8 else name
        with stages.stage(label):
            hits = search.answers(candidate, "all").hits[:, 0]
        ratio = ratio_of(base.throughput, times[candidate].throughput)
        rows.append(
            Row(label, search.macs(candidate) / 1e9, hits, times[candidate], ratio)
        )
    return rows


def _print(rows: Sequence[Row], network: Network) -> None:
    dense, measuring = rows[0].hits, network.recipe.measure
    print(
        f"{network.vit.spec.name}, {len(dense)} images, batch {measuring.batch}, {measuring.rounds} rounds\n"
    )
    print(f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|")
    for row in rows:
        loss, interval = _loss(dense, row.hits)
        low, high = wilson(int(row.hits.sum()), len(row.hits))
        cells = (
            row.name,
            f"{row.gmacs:.3f}",
            f"{row.hits.mean():.2%}",
            f"{100 * low:.1f} to {100 * high:.1f}",
            f"{loss:+.2f}",
            f"{interval[0]:+.2f} to {interval[1]:+.2f}",
            f"{row.timed.throughput.images_per_s:.1f}",
            f"{row.ratio.median:.2f}",
            f"{row.ratio.quartiles[0]:.2f} to {row.ratio.quartiles[1]:.2f}",
            f"{row.timed.file_bytes / 1e6:.1f}",
        )
        print(f"| {' | '.join(cells)} |")


def _trade_off(rows: Sequence[Row], batch: int) -> TradeOff:
    """Return all rows but the first, which is the unpruned model, as points of a chart."""
    dense = rows[0].hits
    losses = [_loss(dense, row.hits) for row in rows]
    points: list[TradePoint] = []
    for at in sorted(
        range(1, len(rows)), key=lambda at: rows[at].timed.throughput.median_ms
    ):
        best = all(losses[at][0] < point.loss_points for point in points)
        speed = rows[at].timed.throughput.images_per_s
        points.append(TradePoint(rows[at].name, speed, *losses[at], front=best))
    unpruned = {"dense": rows[0].timed.throughput.images_per_s}
    return TradeOff(batch, "top1", len(dense), unpruned, tuple(points))


def _loss(dense: Array, pruned: Array) -> tuple[float, tuple[float, float]]:
    """Return the points that a model loses, and the 95 % interval (paired)."""
    lost, gained = loss_of(dense, pruned)
    low, high = loss_interval(lost, gained, len(dense))
    return 100 * (lost - gained) / len(dense), (100 * low, 100 * high)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_recipe(parser)
    add_flags(parser, Recipe, FLAGS)
    parser.add_argument(
        "--out", type=Path, required=True, help="Folder of what was measured."
    )
    parser.add_argument(
        "--chart",
        type=Path,
        help="Also draw top-1 against images per second, as a PNG.",
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
