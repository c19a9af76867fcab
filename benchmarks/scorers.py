"""Measure top-1 of one model under every scorer at the same patch counts. JSON on stdout.

    python benchmarks/scorers.py --recipe engines/demo.toml --calibration build/demo/calibration.safetensors

Patch counts depend only on rho and the calibration's ACS, so scorers differ in which patches they keep, not in how
many. "random" is the mean over several seeds.
"""

import argparse
import json
import statistics
import sys
from dataclasses import replace
from pathlib import Path

import torch

from exporter.calibration.record import load_calibration
from exporter.data.batches import batches
from exporter.data.images import ImageFile
from exporter.evaluation.accuracy import evaluate
from exporter.evaluation.parity.reference import reference_runner
from exporter.pruning.pruned_vit import PrunedViT
from exporter.workflows import steps
from exporter.workflows.planning import Planner
from exporter.workflows.recipe import Recipe, read_recipe
from exporter.workflows.resolve import resolve

SCORERS = ("fused", "intra", "inter")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--recipe", type=Path, required=True, help="Recipe with model and images.")
    parser.add_argument("--calibration", type=Path, required=True, help="Its calibration.")
    parser.add_argument("--rhos", type=float, nargs="+", default=[0.7], help="Lowest retention rates.")
    parser.add_argument("--seeds", type=int, default=5, help="Seeds of the random scorer.")
    parser.add_argument("--threads", type=int, default=0, help="Threads of PyTorch; 0 leaves its default.")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    job = resolve(Recipe(**read_recipe(options.recipe)))
    vit, batch = steps.load_model(job.model, job.device), job.measuring.batch
    calibration = load_calibration(options.calibration)
    files = steps.eval_images(job.images, vit.spec).files
    rows: dict[str, dict[str, float]] = {"dense": {"top1": top1(steps.dense(vit), files, batch)}}
    for rho in options.rhos:
        found: dict[str, float] = {}
        for scorer in (*SCORERS, *(f"random {seed}" for seed in range(options.seeds))):
            name, _, seed = scorer.partition(" ")
            scoring = replace(job.scoring, scorer=name, seed=int(seed or job.scoring.seed))
            schedule = Planner.of(vit.spec, scoring, calibration).of_rho(rho)
            pruned = steps.prune(vit, schedule, calibration)
            found[scorer] = top1(pruned, files, batch)
            print(f"rho {rho} {scorer}: {found[scorer]:.4f}", file=sys.stderr)
        random = [value for scorer, value in found.items() if scorer.startswith("random")]
        kept = {scorer: found[scorer] for scorer in SCORERS}
        rows[f"rho {rho}"] = {**kept, "random": statistics.mean(random), "gmacs": pruned.macs.gmacs}
    print(json.dumps(rows, indent=2))


def top1(pruned: PrunedViT, files: tuple[ImageFile, ...], batch: int) -> float:
    """Return the share of images that are classified correctly."""
    runner = reference_runner(pruned)
    return evaluate(runner, batches(files, pruned.vit.spec.preprocessing, "float32", batch)).top1


if __name__ == "__main__":
    main()
