"""Time of a DeiT with fewer layers, with fewer patches, and with both, interleaved in one run. Markdown on stdout.

    python benchmarks/depth.py --model deit_small_patch16_224 --attention 1,3,5,8 --activation 2,7,9,11 --batch 8

Weights are noise: time depends on the structure alone. The rates follow from the published ACS of the whole model;
a layer without attention keeps all its patches.
"""

import argparse
import sys
from collections.abc import Sequence

import numpy as np
from deits import MODELS, deit, dense, schedule

from exporter.depth.plan import DepthPlan
from exporter.depth.surgery import apply_plan
from exporter.errors import UserError
from exporter.evaluation.benchmark import Comparison, compare_speed
from exporter.models.base import PrunableViT
from exporter.pruning.pruned_vit import PrunedViT
from exporter.schedule.plan import Prune, keep_everything, star_schedule
from exporter.settings import add_flags, from_flags
from exporter.targets import ONNXRUNTIME
from exporter.vocabulary import InputKind, Method
from exporter.workflows.measuring import lowered, noise, timed
from exporter.workflows.recipe import Measuring

COLUMNS = ("model", "GMACs", "img/s", "speed-up", "quartiles", "E")


def main(argv: Sequence[str] | None = None) -> int:
    """Lower, measure, print the table, and return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="deit_small_patch16_224", choices=MODELS, help="DeiT to measure.")
    parser.add_argument("--rho", type=float, default=0.7, help="The lowest retention rate.")
    add_flags(parser, DepthPlan, ("attention", "activation"))
    add_flags(parser, Measuring)
    options = parser.parse_args(argv)
    try:
        plan, measuring = from_flags(DepthPlan, options), from_flags(Measuring, options)
        smaller = apply_plan(deit(options.model), plan)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    models = {
        "dense": dense(options.model),
        "depth": PrunedViT(smaller, keep_everything(smaller.spec)),
        "patches": _pruned(deit(options.model), options),
        "both": _pruned(smaller, options),
    }
    images = noise(deit(options.model).spec, "float32", measuring.batch)
    files = {name: lowered(each, [ONNXRUNTIME], InputKind.FLOAT32)[0] for name, each in models.items()}
    times, base = timed(files, images, measuring), models["dense"].macs.total
    found = {
        name: compare_speed(times["dense"], times[name], (base, each.macs.total))
        for name, each in models.items()
    }
    print(f"{options.model}, rho {options.rho:g}, batch {measuring.batch}, without attention "
          f"{list(plan.attention)}, activation {list(plan.activation)}\n")  # fmt: skip
    print(f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|")
    for name, each in models.items():
        cells = _cells(each.macs.gmacs, times[name].images_per_s, found[name])
        print(f"| {name} | {' | '.join(cells)} |")
    print(f"\nproduct of both speed-ups: {found['depth'].speedup * found['patches'].speedup:.2f}")
    return 0


def _pruned(vit: PrunableViT, options: argparse.Namespace) -> PrunedViT:
    """Return a network with the rates that the whole model has; its inter-layer scores are noise."""
    acs = schedule(options.model, options.rho).acs
    assert acs is not None
    planned = star_schedule(vit.spec, acs, options.rho, Prune(method=Method.STAR, reduce="drop"))
    inter = np.random.default_rng(0).uniform(0.1, 1.0, (vit.spec.depth, vit.spec.num_patches))
    return PrunedViT(vit, planned, inter)


def _cells(gmacs: float, rate: float, found: Comparison) -> tuple[str, ...]:
    low, high = found.quartiles
    return (
        f"{gmacs:.2f}",
        f"{rate:.1f}",
        f"{found.speedup:.2f}",
        f"{low:.2f} to {high:.2f}",
        f"{found.efficiency:.3f}",
    )


if __name__ == "__main__":
    sys.exit(main())
