"""Time of merging beside that of dropping, at equal counts of patches; and of ToMe. Markdown on stdout.

    python benchmarks/merging.py --model deit_small_patch16_224 --batch 8

All have STAR's rates of one rho, but ToMe, which has rates of its own: its rho is solved for the multiply-adds of
STAR's rates with pairs. All are lowered by the same passes and measured in turns with the dense model.
"""

import argparse

import numpy as np
import torch
from deits import MODELS, deit, dense, prune, schedule

from exporter.evaluation.benchmark import Comparison, compare_speed, throughput
from exporter.evaluation.benchmark.timing import ratio_of
from exporter.lowering.pipeline import lower
from exporter.pruning.pruned_vit import PrunedViT
from exporter.records import Schedule
from exporter.runtimes.onnxruntime.runner import OnnxRuntimeRunner
from exporter.schedule.macs import schedule_macs
from exporter.schedule.plan import Prune, tome_schedule
from exporter.schedule.rates import rho_for
from exporter.targets import ONNXRUNTIME
from exporter.tensor_names import IMAGES, LOGITS
from exporter.vocabulary import Method
from exporter.workflows.measuring import noise

COLUMNS = (
    "way",
    "GMACs",
    "img/s",
    "speed-up",
    "quartiles",
    "E",
    "time over drop",
    "quartiles",
    "largest error",
)
DROP, PAIRS = "fused, drop", "pairs, merge-weighted"
TOME = Prune(method=Method.TOME)


def schedules(model: str, rho: float) -> dict[str, Schedule]:
    """Plan each way, by its name in the table."""
    spec = deit(model).spec
    planned = {
        DROP: schedule(model, rho, reduce="drop"),
        PAIRS: schedule(model, rho, scorer="pairs", reduce="merge-weighted"),
        "pairs, merge": schedule(model, rho, scorer="pairs", reduce="merge"),
        "fused, merge": schedule(model, rho, scorer="fused", reduce="merge"),
        "fused, merge-weighted": schedule(model, rho, scorer="fused", reduce="merge-weighted"),
    }
    most = schedule_macs(spec, planned[PAIRS]).total
    tome = rho_for(
        lambda rho: tome_schedule(spec, rho, TOME), lambda each: schedule_macs(spec, each).total, most
    )
    r = (spec.num_patches - tome.keep[-1]) / spec.depth
    return planned | {f"ToMe, r = {r:.1f} (the default)": tome}


def main() -> None:
    """Lower, measure, print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="deit_small_patch16_224", choices=MODELS, help="DeiT to measure.")
    parser.add_argument("--rho", type=float, default=0.7, help="Lowest rate.")
    parser.add_argument("--batch", type=int, default=8, help="Images per run.")
    parser.add_argument("--rounds", type=int, default=40, help="Timed rounds.")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads; 0 is one per physical core.")
    options = parser.parse_args()
    references = {"dense": dense(options.model)}
    planned = schedules(options.model, options.rho)
    references |= {name: prune(each, options.model) for name, each in planned.items()}
    runners = {
        name: OnnxRuntimeRunner(lower(each, ONNXRUNTIME).SerializeToString(), threads=options.threads)
        for name, each in references.items()
    }
    feed = {IMAGES: noise(deit(options.model).spec, "float32", options.batch)}
    times = throughput(runners, feed, batch=options.batch, rounds=options.rounds, warmup=3)
    macs = {name: each.macs.total for name, each in references.items()}
    print(f"{options.model}, rho {options.rho}, batch {options.batch}, {options.rounds} rounds\n")
    print(f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|")
    for name, runner in runners.items():
        against = compare_speed(times["dense"], times[name], (float(macs["dense"]), float(macs[name])))
        over = ratio_of(times[name], times[DROP])
        low, high = (f"{each - 1:+.1%}" for each in over.quartiles)
        error = _error(runner, references[name], feed)
        cells = _speed(macs[name] / 1e9, times[name].images_per_s, against)
        print(
            f"| {' | '.join((name, *cells, f'{over.median - 1:+.1%}', f'{low} to {high}', f'{error:.1e}'))} |"
        )


def _error(runner: OnnxRuntimeRunner, reference: PrunedViT, feed: dict[str, np.ndarray]) -> float:
    """Return the largest difference from PyTorch's logits, in standard deviations of the logits."""
    with torch.inference_mode(), runner:
        expected = reference.trace(torch.from_numpy(feed[IMAGES])).logits.numpy()
        return float(np.abs(runner.run(feed)[LOGITS] - expected).max() / expected.std())


def _speed(gmacs: float, rate: float, against: Comparison) -> tuple[str, ...]:
    low, high = against.quartiles
    quartiles = f"{low:.3f} to {high:.3f}"
    return f"{gmacs:.2f}", f"{rate:.1f}", f"{against.speedup:.3f}", quartiles, f"{against.efficiency:.3f}"


if __name__ == "__main__":
    main()
