r"""Compare the front of `tune` with those of single methods, at equal budgets. Markdown on stdout.

    python benchmarks/fronts.py --model cifar_vit --images cifar10/train --eval-images cifar10/test \
        --target onnxruntime-fp32 --max-drop 5 --minutes 3 --finalists 5 --out build/fronts

Each search has the same time and chooses on the search half; the losses are those on the final half, which none has
read. The last columns compare a method's point with the front of all axes where that is as fast: what the better
of the two loses less, with its 95 % interval (paired). Measurements are kept in --out: a second call repeats none.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from exporter.cli.stages import RichStages
from exporter.errors import UserError
from exporter.evaluation.intervals import loss_interval
from exporter.settings import add_flags, from_flags
from exporter.vocabulary import Method
from exporter.workflows.recipes.recipe import Recipe
from exporter.workflows.recipes.resolve import resolve
from exporter.workflows.tuning.accuracy import AccuracyMeter
from exporter.workflows.tuning.axes import OWN, UNPRUNED
from exporter.workflows.tuning.bench import Bench
from exporter.workflows.tuning.choice import Point, front
from exporter.workflows.tuning.halving import loss_of
from exporter.workflows.tuning.inputs import candidates_of, halves_of, ledger_of, targets_here, timing_images
from exporter.workflows.tuning.networks import calibrated, load_vits
from exporter.workflows.tuning.settings import TuneSettings
from exporter.workflows.tuning.study import Study

Array = np.ndarray
ALL = "all axes"
# What each search is bound to.
BOUND: Mapping[str, dict[str, Any]] = {
    ALL: {},
    "ToMe": {"method": Method.TOME},
    "STAR": {"method": Method.STAR, "scorer": "fused", "reduce": "drop"},
    "a-STAR": {"method": Method.A_STAR, "scorer": "fused"},
    "random": {"method": Method.STAR, "scorer": "random", "reduce": "drop"},
}
COLUMNS = (
    "search",
    "front",
    "gain",
    "points lost",
    "95 % interval",
    "all axes, as fast",
    "loses less by",
    "95 %",
)
# Two points of speeds that differ by less are as fast: timings are that noisy.
NOISE = 0.03


@dataclass(frozen=True, eq=False)
class Judged:
    """A point of a front, and which images of the final half it and the unpruned model have right."""

    point: Point
    dense: Array
    own: Array


def main(argv: Sequence[str] | None = None) -> int:
    """Search, judge, print the table, and return the exit code."""
    options = _options(argv)
    try:
        recipe, settings = from_flags(Recipe, options), from_flags(TuneSettings, options)
        fronts = {
            name: _front(replace(recipe, **bound), settings, options.out) for name, bound in BOUND.items()
        }
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|")
    for name, points in fronts.items():
        for point in points:
            rival = None if name == ALL else _as_fast(point, fronts[ALL])
            print(f"| {name} | {' | '.join((*_cells(point), *_compared(point, rival)))} |")
    return 0


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    own = ("model", "images", "eval_images", "max_images", "max_eval_images", "calibration")
    add_flags(parser, Recipe, (*own, "batch", "rounds", "threads"))
    add_flags(parser, TuneSettings, ("max_drop", "runtime", "target", "minutes", "finalists"))
    parser.set_defaults(max_eval_images=100_000)
    parser.add_argument("--out", type=Path, required=True, help="Folder of what was measured.")
    return parser.parse_args(argv)


def _front(recipe: Recipe, settings: TuneSettings, out: Path) -> list[Judged]:
    """Search as `tune` does, and judge the front on the final half."""
    stages, job = RichStages(), resolve(recipe)
    vits = load_vits({OWN: job}, stages)
    search, final = halves_of(job.images, vits[OWN], settings)
    ledger = ledger_of(out, job, search, final)
    networks = calibrated({OWN: job}, vits, out, ledger, stages)
    with TemporaryDirectory() as scratch:
        pixels = timing_images(job.images, vits[OWN].spec, job.measuring.batch)
        bench = Bench(networks, job, ledger, Path(scratch), pixels)
        study = Study(bench, search, final, settings, targets_here(settings), stages)
        found = front(study.measured(candidates_of(job, networks)).points)
        meter = AccuracyMeter(bench, final, settings.metric)
        dense = meter.right(UNPRUNED)
        # In fp32 the answers are PyTorch's.
        return [Judged(each, dense, meter.right(each.candidate.on(""))) for each in found]


def _as_fast(point: Judged, rivals: Sequence[Judged]) -> Judged | None:
    """Return the most accurate of the rivals that are as fast, None if none is."""
    fast = [each for each in rivals if each.point.gain >= (1 - NOISE) * point.point.gain]
    return max(fast, key=lambda each: int(each.own.sum()), default=None)


def _cells(judged: Judged) -> tuple[str, ...]:
    loss, interval = _loss(judged.dense, judged.own)
    return judged.point.candidate.label, f"{judged.point.gain:.2f} ×", loss, interval


def _compared(judged: Judged, rival: Judged | None) -> tuple[str, ...]:
    if rival is None:
        return ("", "", "")
    return (f"{rival.point.gain:.2f} ×", *_loss(rival.own, judged.own))


def _loss(first: Array, second: Array) -> tuple[str, str]:
    """Return what the second model loses against the first, in points, with its interval."""
    lost, gained = loss_of(first, second)
    low, high = loss_interval(lost, gained, len(first))
    return f"{100 * (lost - gained) / len(first):+.2f}", f"{100 * low:+.2f} to {100 * high:+.2f}"


if __name__ == "__main__":
    sys.exit(main())
