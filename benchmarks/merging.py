"""Compare STAR with token merging (ToMe, ICLR 2023) at equal MACs, interleaved. Markdown on stdout.

    python benchmarks/merging.py --model deit_small_patch16_224 --batch 8

Both are lowered by the same passes and measured beside the same dense model. The rho of each is solved for the same
share of the multiply-adds, scoring and merging included: ToMe's r, the patches that it merges in each layer, need
not be an integer.
"""

import argparse
from functools import partial

import numpy as np
import torch
from deits import MODELS, deit, dense, prune, schedule

from exporter.evaluation.benchmark import Comparison, compare_speed, throughput
from exporter.lowering.pipeline import lower
from exporter.pruning.pruned_vit import PrunedViT
from exporter.records import Schedule
from exporter.runtimes.onnxruntime_runner import OnnxRuntimeRunner
from exporter.schedule.macs import dense_macs, schedule_macs
from exporter.schedule.plan import ScheduleSettings, tome_schedule
from exporter.schedule.solve import rho_for
from exporter.targets import ONNXRUNTIME
from exporter.tensor_names import IMAGES, LOGITS
from exporter.vocabulary import Method
from exporter.workflows.measuring import noise

COLUMNS = ("model", "GMACs", "img/s", "speed-up", "quartiles", "E", "largest error")
TOME = ScheduleSettings(method=Method.TOME)


def schedules(model: str, saved: float) -> dict[str, Schedule]:
    """Plan STAR and ToMe so that both save this share of the dense model's multiply-adds, by name in the table."""
    spec = deit(model).spec
    most = (1.0 - saved) * dense_macs(spec).total

    def macs(planned: Schedule) -> float:
        return float(schedule_macs(spec, planned).total)

    star = rho_for(partial(schedule, model), macs, most)
    tome = rho_for(lambda rho: tome_schedule(spec, rho, TOME), macs, most)
    r = (spec.num_patches - tome.keep[-1]) / spec.depth
    return {f"STAR, rho {star.rho:.2f}": star, f"ToMe, r = {r:.1f}": tome}


def main() -> None:
    """Lower, measure, print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="deit_small_patch16_224", choices=MODELS, help="DeiT to measure.")
    parser.add_argument("--mac-reduction", type=float, default=0.4, help="Share of the MACs that both save.")
    parser.add_argument("--batch", type=int, default=8, help="Images per run.")
    parser.add_argument("--rounds", type=int, default=40, help="Timed rounds.")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads; 0 is one per physical core.")
    options = parser.parse_args()
    planned = schedules(options.model, options.mac_reduction)
    references = {"dense": dense(options.model)}
    references |= {name: prune(each, options.model) for name, each in planned.items()}
    runners = {
        name: OnnxRuntimeRunner(lower(each, ONNXRUNTIME).SerializeToString(), threads=options.threads)
        for name, each in references.items()
    }
    feed = {IMAGES: noise(deit(options.model).spec, "float32", options.batch)}
    times = throughput(runners, feed, batch=options.batch, rounds=options.rounds, warmup=3)
    macs = {name: each.macs.total for name, each in references.items()}
    run = f"batch {options.batch}, {options.rounds} rounds"
    print(f"{options.model}, {options.mac_reduction:.0%} of the MACs saved, {run}\n")
    print(f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|")
    for name, runner in runners.items():
        against = compare_speed(times["dense"], times[name], (float(macs["dense"]), float(macs[name])))
        error = _error(runner, references[name], feed)
        print(_row(name, macs[name] / 1e9, times[name].images_per_s, against, error))


def _error(runner: OnnxRuntimeRunner, reference: PrunedViT, feed: dict[str, np.ndarray]) -> float:
    """Return the largest difference from PyTorch's logits, in standard deviations of the logits."""
    with torch.inference_mode(), runner:
        expected = reference.trace(torch.from_numpy(feed[IMAGES])).logits.numpy()
        return float(np.abs(runner.run(feed)[LOGITS] - expected).max() / expected.std())


def _row(name: str, gmacs: float, rate: float, against: Comparison, error: float) -> str:
    low, high = against.quartiles
    cells = (f"{gmacs:.2f}", f"{rate:.1f}", f"{against.speedup:.3f}", f"{low:.3f} to {high:.3f}")
    return f"| {' | '.join((name, *cells, f'{against.efficiency:.3f}', f'{error:.1e}'))} |"


if __name__ == "__main__":
    main()
