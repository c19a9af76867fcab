"""Time every runtime and precision on DeiT, dense and pruned, interleaved in one run. Markdown on stdout.

    python benchmarks/precisions.py --model deit_small_patch16_224 --batch 8 --threads 2

Weights and calibration images are noise: time depends on the structure alone. For accuracy see `star-export best`.
"""

import argparse
import logging
import sys

import numpy as np
from deits import MODELS, deit, dense, prune, schedule

from exporter.evaluation.benchmark import Ratio, Throughput, ratio_of
from exporter.runtimes.choice import why_not
from exporter.targets import ONNXRUNTIME, TARGETS
from exporter.vocabulary import InputKind
from exporter.workflows.measuring import lowered, noise, timed
from exporter.workflows.recipes.requests import Measuring

COLUMNS = (
    "target",
    "dense img/s",
    "pruned img/s",
    "over dense fp32",
    "quartiles",
    "over own dense",
    "quartiles",
)


def main() -> None:
    """Lower, measure, print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="deit_small_patch16_224", choices=MODELS, help="DeiT to measure.")
    parser.add_argument("--rho", type=float, default=0.7, help="The lowest retention rate.")
    parser.add_argument("--batch", type=int, default=8, help="Images per run.")
    parser.add_argument("--rounds", type=int, default=15, help="Timed rounds.")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads; 0 is one per physical core.")
    parser.add_argument("--targets", nargs="*", choices=TARGETS, help="By default all that run here.")
    options = parser.parse_args()
    logging.disable(logging.WARNING)  # silences the quantizer
    names = ["onnxruntime-fp32", *(options.targets or TARGETS)]
    targets = [TARGETS[name] for name in dict.fromkeys(names) if not _left_out(name)]
    pruned = prune(schedule(options.model, options.rho), options.model)
    images = noise(deit(options.model).spec, "float32", options.batch)
    ranges = np.concatenate([images] * 2)
    every = [lowered(each, targets, InputKind.FLOAT32, ranges) for each in (dense(options.model), pruned)]
    measuring = Measuring(batch=options.batch, rounds=options.rounds, threads=options.threads)
    times = timed(
        {(each.target.name, role): each for role, models in enumerate(every) for each in models},
        images,
        measuring,
    )
    print(f"{options.model}, rho {options.rho:g}, batch {options.batch}, {options.rounds} rounds\n")
    print(f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|")
    base = times[ONNXRUNTIME.name, 0]
    for name in sorted((each.name for each in targets), key=lambda name: times[name, 1].median_ms):
        print(f"| {' | '.join(_row(name, base, times[name, 0], times[name, 1]))} |")


def _left_out(name: str) -> bool:
    reason = why_not(TARGETS[name])
    if reason:
        print(f"{name}: left out, {reason}", file=sys.stderr)
    return bool(reason)


def _row(name: str, base: Throughput, unpruned: Throughput, pruned: Throughput) -> list[str]:
    rates = (f"{each.images_per_s:.1f}" for each in (unpruned, pruned))
    return [name, *rates, *_shown(ratio_of(base, pruned)), *_shown(ratio_of(unpruned, pruned))]


def _shown(ratio: Ratio) -> tuple[str, str]:
    return f"{ratio.median:.2f}", f"{ratio.quartiles[0]:.2f} to {ratio.quartiles[1]:.2f}"


if __name__ == "__main__":
    main()
