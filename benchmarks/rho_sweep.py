"""Chart throughput against MACs over rho for a DeiT with random weights. Writes a PNG, and the numbers as JSON.

    python benchmarks/rho_sweep.py --model deit_small_patch16_224 --batch 8 --out build/sweep

For a trained model, the report of `star-export compile --sweep 0.9,0.7,0.5` has the same chart.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from deits import MODELS, deit, dense, prune, schedule

from exporter.evaluation.benchmark import compare_speed
from exporter.evaluation.benchmark.points import Point, RhoSweep
from exporter.evaluation.report.chart import throughput_chart
from exporter.files import written_beside
from exporter.formats.canonical_json import save_json
from exporter.pruning.pruned_vit import PrunedViT
from exporter.targets import ONNXRUNTIME
from exporter.vocabulary import InputKind
from exporter.workflows.measuring import lowered, noise, timed
from exporter.workflows.recipes.requests import Measuring


def main() -> None:
    """Measure all rho in one run, write the chart and the JSON, print the points."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="deit_small_patch16_224", choices=MODELS, help="DeiT to measure.")
    parser.add_argument("--rhos", type=float, nargs="+", default=[0.9, 0.8, 0.7, 0.6, 0.5], help="The rhos.")
    parser.add_argument("--round-to", type=int, default=1, help="Token counts as a multiple of this.")
    parser.add_argument("--batch", type=int, default=8, help="Images per run.")
    parser.add_argument("--rounds", type=int, default=20, help="Timed rounds.")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads; 0 is one per physical core.")
    parser.add_argument("--out", type=Path, default=Path("build/sweep"), help="Output path without suffix.")
    options = parser.parse_args()
    measuring = Measuring(batch=options.batch, rounds=options.rounds, threads=options.threads)
    images = noise(deit(options.model).spec, "float32", options.batch)
    pruned = [prune(schedule(options.model, rho, options.round_to), options.model) for rho in options.rhos]
    sweep = _sweep(dense(options.model), pruned, images, measuring)
    save_json(sweep, options.out.with_suffix(".json"))
    with written_beside(options.out.with_suffix(".png")) as partial_file:
        partial_file.write_bytes(throughput_chart(sweep, options.model))
    for point in sweep.points:
        low, high = point.comparison.quartiles
        print(
            f"rho {point.rho:g}: {point.gmacs:.3f} GMACs, {point.throughput.images_per_s:.1f} images/s, "
            f"{point.comparison.speedup:.3f} × ({low:.3f} to {high:.3f}), E {point.comparison.efficiency:.3f}"
        )


def _sweep(
    unpruned: PrunedViT, pruned: Sequence[PrunedViT], images: np.ndarray, measuring: Measuring
) -> RhoSweep:
    models = [lowered(each, [ONNXRUNTIME], InputKind.FLOAT32)[0] for each in (unpruned, *pruned)]
    base, *times = timed(dict(enumerate(models)), images, measuring).values()
    points = []
    for model, time in zip(pruned, times, strict=True):
        compared = compare_speed(base, time, (float(unpruned.macs.total), float(model.macs.total)))
        points.append(Point(model.schedule.rho, model.macs.gmacs, time, compared))
    return RhoSweep(measuring.batch, unpruned.macs.gmacs, base, tuple(points))


if __name__ == "__main__":
    main()
