r"""Compare top-1 of every way to prune, at equal multiply-adds and at equal patch counts. Markdown on stdout.

    star-export calibrate --model digits_vit --images build/digits/train --out build/digits.safetensors
    python benchmarks/accuracy.py --model digits_vit --eval-images build/digits/held_out \
        --calibration build/digits.safetensors --mac-reductions 0.2 0.4 --rhos 0.5 --out build/accuracy/digits

All ways see the same images, without fine-tuning. At equal multiply-adds, the rho of each way is solved for; at
equal counts, all have the rates of one rho, and ToMe, a-STAR and manual rates, whose counts are their own, are left
out. Whether each image was right is kept in --out: a second run only computes what is missing.
"""

import argparse
import hashlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from ways import RECEIVED, WAYS, Way, ways_of

from exporter.calibration.record import Calibration
from exporter.cli.flags import add_recipe, recipe_of
from exporter.cli.setting_flags import add_flags
from exporter.core.base.canonical_json import to_json
from exporter.core.base.errors import ScheduleError
from exporter.core.base.files import written_beside
from exporter.core.base.intervals import loss_interval, wilson
from exporter.core.base.records import Schedule
from exporter.core.base.vocabulary import InputKind
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.schedule.plan import schedule_of
from exporter.core.schedule.policy import resolve
from exporter.core.verify.reference import mean_useful_macs, reference_runner
from exporter.core.vit.protocol import PrunableViT
from exporter.data.batches import batches
from exporter.data.images import ImageFolder, listing_sha256
from exporter.jobs import steps
from exporter.jobs.opened import open_recipe
from exporter.jobs.recipe import Recipe
from exporter.measure.accuracy import predict_each

COLUMNS = (
    "way",
    "GMACs",
    "top-1",
    "95 %",
    "points lost",
    "95 %",
    "points below the first row",
    "95 %",
)

FLAGS = (
    "model",
    "checkpoint",
    "model_kwargs",
    "calibration",
    "eval_images",
    "max_eval_images",
    "batch",
)
DEFAULTS = {"images": {"max_eval_images": 100_000}, "measure": {"batch": 100}}

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Found:
    """Multiply-adds of an image; and which images were right, for each seed [seeds, images]."""

    gmacs: float
    hits: Array


@dataclass(frozen=True)
class Bench:
    """A model with its calibration, labelled images, and a folder of what was measured."""

    vit: PrunableViT
    calibration: Calibration
    folder: ImageFolder
    batch: int
    out: Path

    @cached_property
    def key(self) -> str:
        """Identifies the model, the images and the calibration."""
        parts = (
            self.vit.weights_sha256,
            listing_sha256(self.folder),
            to_json(self.calibration.record),
        )
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]

    @cached_property
    def ways(self) -> Mapping[str, Way]:
        """The ways to prune this model."""
        return ways_of(self.vit.spec)

    @cached_property
    def loaded(self) -> Sequence[tuple[Array, Array]]:
        """The images in batches, with their classes."""
        return list(
            batches(
                self.folder.files, self.vit.spec.preprocessing, "float32", self.batch
            )
        )

    def measure(self, way: str, amount: dict[str, Any], seeds: int) -> Found:
        """Return what a way gets right; only random positions depend on the seed."""
        runs = []
        chosen = self.ways[way]
        for seed in range(seeds if chosen.scoring.scorer == "random" else 1):
            rates: Any = chosen.rates(self.vit.spec.depth)
            how = replace(chosen.scoring, seed=seed, rates=rates, **amount)
            schedule = schedule_of(
                resolve(how), self.vit.spec, self.calibration, image_cost=self.macs
            )
            pruned = steps.prune(self.vit, schedule, self.calibration)
            runs.append(
                self.hits(pruned, f"{way}, rho {schedule.rho:.6f}, seed {seed}")
            )
        return Found(self.macs(schedule) / 1e9, np.stack(runs))

    def macs(self, schedule: Schedule) -> float:
        """Return the multiply-adds of an image, under a-STAR the mean over the first batch."""
        pruned = steps.prune(self.vit, schedule, self.calibration)
        return mean_useful_macs(pruned, self.loaded[0][0], InputKind.FLOAT32)

    def hits(self, pruned: PrunedViT, name: str) -> Array:
        """Return which images a model gets right, read where they were measured before."""
        path = self.out / self.key / f"{name}.npy"
        if not path.exists():
            runner = reference_runner(pruned)
            loaded = track(self.loaded, name, console=Console(stderr=True))
            (predictions,) = predict_each(
                [runner], (((pixels,), labels) for pixels, labels in loaded)
            )
            right = predictions.hits[:, 0]
            with written_beside(path) as partial, partial.open("wb") as file:
                np.save(file, right)
        return np.load(path)


def main() -> None:
    """Measure and print one table for each amount."""
    options = _options()
    network = open_recipe(recipe_of(options, DEFAULTS)).network
    measuring = network.recipe.measure
    if measuring.threads:
        torch.set_num_threads(measuring.threads)
    vit, calibration = network.full, network.calibration
    if calibration is None:
        raise SystemExit(
            "--calibration is needed: the file that star-export calibrate wrote"
        )
    bench = Bench(vit, calibration, network.evaluated, measuring.batch, options.out)
    dense = bench.hits(steps.dense(vit), "dense")
    print(
        f"{vit.spec.name}, {len(dense)} images, dense {_top1(dense)}, GMACs {steps.dense(vit).macs.gmacs:.3f}"
    )
    amounts = [{"mac_reduction": share} for share in options.mac_reductions]
    amounts += [{"rho": rho} for rho in options.rhos]
    for amount in amounts:
        equal_counts = "rho" in amount
        wanted = {
            way: how
            for way, how in bench.ways.items()
            if way in (options.ways or bench.ways)
        }
        ways = [
            way for way, how in wanted.items() if not equal_counts or how.counts_of_star
        ]
        results = dict(_measured(bench, ways, amount, options.seeds))
        print(f"\n{amount}\n\n| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|")
        for way, result in results.items():
            cells = (
                f"{result.gmacs:.3f}",
                _top1(result.hits),
                _loss(dense, result.hits),
                _loss(next(iter(results.values())).hits, result.hits),
            )
            print(f"| {way} | {' | '.join(cells)} |")


def _measured(
    bench: Bench, ways: Sequence[str], amount: dict[str, float], seeds: int
) -> Iterator[tuple[str, Found]]:
    """Yield what each way gets right; one that cannot prune so much is named and left out."""
    for way in ways:
        try:
            yield way, bench.measure(way, amount, seeds)
        except ScheduleError as error:
            print(f"{way}: {error}", file=sys.stderr)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_recipe(parser)
    add_flags(parser, Recipe, FLAGS)
    parser.add_argument(
        "--mac-reductions",
        type=float,
        nargs="*",
        default=[],
        help="Shares of the MACs to save.",
    )
    parser.add_argument(
        "--rhos",
        type=float,
        nargs="*",
        default=[],
        help="Lowest rates, for equal counts.",
    )
    parser.add_argument(
        "--ways", nargs="+", choices=[*WAYS, *RECEIVED], help="Only these."
    )
    parser.add_argument(
        "--seeds", type=int, default=3, help="Seeds of random positions."
    )
    parser.add_argument(
        "--out", type=Path, required=True, help="Folder of what was measured."
    )
    return parser.parse_args()


def _top1(hits: Array) -> str:
    """Return two cells: the mean over seeds, and its interval as if all seeds were one run."""
    low, high = wilson(hits.mean() * hits.shape[-1], hits.shape[-1])
    return f"{hits.mean():.2%} | {100 * low:.1f} to {100 * high:.1f}"


def _loss(first: Array, second: Array) -> str:
    """Return two cells: the points that the second loses, and their interval; both are means over seeds."""
    lost = (first & ~second).mean() * second.shape[-1]
    gained = (second & ~first).mean() * second.shape[-1]
    low, high = loss_interval(lost, gained, second.shape[-1])
    return f"{100 * (lost - gained) / second.shape[-1]:+.2f} | {100 * low:+.2f} to {100 * high:+.2f}"


if __name__ == "__main__":
    main()
