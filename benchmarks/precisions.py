"""Time every runtime and precision on DeiT, dense and pruned, interleaved in one run. Markdown on stdout.

    python benchmarks/precisions.py --model deit_small_patch16_224 --batch 8 --threads 2

`--also NAME=FILE` times a further file in the same run: an .xml on OpenVINO, an .onnx on both runtimes.
`quantizers.py deit` and `other_quantizers.py nncf` write such files of the same networks.

Weights and calibration images are noise: time depends on the structure alone.
`star-export tune` measures accuracy, too.
"""

import argparse
import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from deits import MODELS, deit, dense, prune, schedule

from exporter.core.base.targets import ONNXRUNTIME, OPENVINO, TARGETS, Target
from exporter.core.base.vocabulary import InputKind
from exporter.core.lower.pipeline import lower_each
from exporter.core.verify.runner import Runner
from exporter.core.verify.runners import runner_here
from exporter.data.batches import noise
from exporter.engines.choice import why_not
from exporter.measure.benchmark import Throughput, ratio_of, throughput

COLUMNS = (
    "target",
    "dense img/s",
    "pruned img/s",
    "over dense fp32",
    "quartiles",
    "over own dense",
    "quartiles",
)
ALSO_COLUMNS = ("file", "img/s", "over dense fp32", "quartiles")


def main() -> None:
    """Lower, measure, print the tables."""
    options = _options()
    logging.disable(logging.WARNING)  # silences the quantizer
    wanted = dict.fromkeys((ONNXRUNTIME.name, *(options.targets or TARGETS)))
    names = [name for name in wanted if not _left_out(name)]
    targets = [TARGETS[name] for name in names]
    images = noise(deit(options.model).spec, "float32", options.batch)
    also = dict[str, Runner]()
    for name, path in options.also:
        also.update(_further(name, path, options.threads))
    runners = {**dict(_ours(options, targets, images)), **also}
    batch, rounds = options.batch, options.rounds
    times = throughput(runners, {"images": images}, batch=batch, rounds=rounds)
    print(f"{options.model}, rho {options.rho:g}, batch {batch}, {rounds} rounds\n")
    base = times[f"dense {ONNXRUNTIME.name}"]
    rows = []
    for name in sorted(names, key=lambda name: times[f"pruned {name}"].median_ms):
        unpruned = times[f"dense {name}"]
        pruned = times[f"pruned {name}"]
        speeds = *_rates(unpruned, pruned), *_ratio(base, pruned)
        rows.append([name, *speeds, *_ratio(unpruned, pruned)])
    _print_table(COLUMNS, rows)
    if also:
        print()
        rows = [
            [name, *_rates(times[name]), *_ratio(base, times[name])] for name in also
        ]
        _print_table(ALSO_COLUMNS, rows)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--model",
        default="deit_small_patch16_224",
        choices=MODELS,
        help="DeiT to measure.",
    )
    parser.add_argument(
        "--rho", type=float, default=0.7, help="The lowest retention rate."
    )
    parser.add_argument("--batch", type=int, default=8, help="Images per run.")
    parser.add_argument("--rounds", type=int, default=15, help="Timed rounds.")
    parser.add_argument(
        "--threads",
        type=int,
        default=0,
        help="CPU threads; 0 is one per physical core.",
    )
    parser.add_argument(
        "--targets", nargs="*", choices=TARGETS, help="By default all that run here."
    )
    parser.add_argument(
        "--also",
        action="append",
        type=_named,
        default=[],
        metavar="NAME=FILE",
        help="A further file to time: .xml on OpenVINO, .onnx on both runtimes. Repeatable.",
    )
    return parser.parse_args()


def _named(text: str) -> tuple[str, Path]:
    name, _, path = text.partition("=")
    if not Path(path).is_file():
        raise argparse.ArgumentTypeError(
            f"got {text} | need NAME=FILE, with a file that exists"
        )
    return name, Path(path)


def _left_out(name: str) -> bool:
    reason = why_not(TARGETS[name])
    if reason:
        print(f"{name}: left out, {reason}", file=sys.stderr)
    return bool(reason)


def _ours(
    options: argparse.Namespace, targets: list[Target], images: np.ndarray
) -> Iterator[tuple[str, Runner]]:
    ranges = np.concatenate([images] * 2)
    pruned = prune(schedule(options.model, options.rho), options.model)
    for role, network in (("dense", dense(options.model)), ("pruned", pruned)):
        models = lower_each(network, targets, InputKind.FLOAT32, ranges)
        for target, model in zip(targets, models, strict=True):
            yield (
                f"{role} {target.name}",
                runner_here(model.SerializeToString(), target, options.threads),
            )


def _further(name: str, path: Path, threads: int) -> Iterator[tuple[str, Runner]]:
    for target in (OPENVINO,) if path.suffix == ".xml" else (OPENVINO, ONNXRUNTIME):
        yield f"{name}, {target.runtime.name}", runner_here(path, target, threads)


def _rates(*times: Throughput) -> list[str]:
    return [f"{time.images_per_s:.1f}" for time in times]


def _ratio(base: Throughput, other: Throughput) -> list[str]:
    ratio = ratio_of(base, other)
    return [
        f"{ratio.median:.2f}",
        f"{ratio.quartiles[0]:.2f} to {ratio.quartiles[1]:.2f}",
    ]


def _print_table(columns: tuple[str, ...], rows: list[list[str]]) -> None:
    for cells in (columns, ["---"] * len(columns), *rows):
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
