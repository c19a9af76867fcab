"""Time every runtime and precision on DeiT, dense and pruned, interleaved in one run. Markdown on stdout.

    python benchmarks/precisions.py --model deit_small_patch16_224 --batch 8 --threads 2

Weights and calibration images are noise: time depends on the structure alone. For accuracy see `star-export best`.
"""

import argparse
import logging
import sys

import numpy as np
from deits import MODELS, deit, dense, prune, schedule

from exporter.evaluation.benchmark.timing import Ratio
from exporter.records import Pair
from exporter.runtimes.choice import why_not
from exporter.targets import TARGETS
from exporter.vocabulary import InputKind
from exporter.workflows.best import Speed, lower_all, measure_all
from exporter.workflows.measuring import noise
from exporter.workflows.requests import Measuring

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
    pair = Pair(dense(options.model), prune(schedule(options.model, options.rho), options.model))
    images = noise(deit(options.model).spec, "float32", options.batch)
    files = lower_all(pair, targets, InputKind.FLOAT32, np.concatenate([images] * 2))
    measuring = Measuring(batch=options.batch, rounds=options.rounds, threads=options.threads)
    speeds = measure_all(files, images, measuring)
    print(f"{options.model}, rho {options.rho:g}, batch {options.batch}, {options.rounds} rounds\n")
    print(f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|")
    for name, speed in sorted(speeds.items(), key=lambda item: item[1].throughput.pruned.median_ms):
        print(f"| {' | '.join(_row(name, speed))} |")


def _left_out(name: str) -> bool:
    reason = why_not(TARGETS[name])
    if reason:
        print(f"{name}: left out, {reason}", file=sys.stderr)
    return bool(reason)


def _row(name: str, speed: Speed) -> list[str]:
    rates = (f"{each.images_per_s:.1f}" for each in (speed.throughput.dense, speed.throughput.pruned))
    return [name, *rates, *_shown(speed.total_gain), *_shown(speed.speedup)]


def _shown(ratio: Ratio) -> tuple[str, str]:
    return f"{ratio.median:.2f}", f"{ratio.quartiles[0]:.2f} to {ratio.quartiles[1]:.2f}"


if __name__ == "__main__":
    main()
