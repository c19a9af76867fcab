"""Compare a-STAR with STAR on ONNX Runtime, at equal mean MACs and at equal rho, interleaved. Markdown on stdout.

    python benchmarks/adaptive.py --model deit_small_patch16_224 --batch 8

Random weights attend to all patches equally. Queries and keys are therefore scaled by PEAKED, inter-layer scores
are log-normal, and images are noise of different strength, so that a-STAR's counts differ between images. Its rho
at equal MACs is solved so that the mean useful MACs of the run's images equal STAR's.
"""

import argparse

import numpy as np
import torch
from deits import MODELS, deit, dense, schedule

from exporter.evaluation.benchmark import Throughput, throughput
from exporter.evaluation.benchmark.timing import ratio_of
from exporter.evaluation.parity.reference import patches_left_of
from exporter.lowering.pipeline import lower
from exporter.models.base import PrunableViT
from exporter.pruning.pruned_vit import PrunedViT
from exporter.records import Schedule
from exporter.runtimes.onnxruntime.runner import OnnxRuntimeRunner
from exporter.schedule.macs import executed_macs, mean_macs
from exporter.schedule.plan import IMAGE_BISECTIONS
from exporter.schedule.rates import rho_for
from exporter.targets import ONNXRUNTIME
from exporter.tensor_names import IMAGES
from exporter.vocabulary import Method
from exporter.workflows.measuring import noise

COLUMNS = ("model", "rho", "useful GMACs", "executed GMACs", "ms", "time / STAR's", "quartiles")
PEAKED, SIGMA, STRENGTHS = 6.0, 1.5, (0.2, 3.0)
LAYOUTS = ("packed", "shrinking", "padded")


def peaked(model: str) -> PrunableViT:
    """Return the network with queries and keys scaled by PEAKED, so that attention is uneven."""
    vit = deit(model)
    with torch.no_grad():
        for name, weight in vit.model.named_parameters():
            if name.endswith("attn.qkv.weight"):
                weight[: 2 * vit.spec.dim] *= PEAKED
    return vit


def varied(vit: PrunableViT, batch: int) -> np.ndarray:
    """Return `batch` noise images of increasing strength."""
    return (
        noise(vit.spec, "float32", batch)
        * np.geomspace(*STRENGTHS, batch, dtype=np.float32)[:, None, None, None]
    )


class Pruning:
    """Pruned models of one network, and their MACs on given images."""

    def __init__(self, vit: PrunableViT, images: np.ndarray) -> None:
        self.vit, self.images = vit, images
        shape = (vit.spec.depth, vit.spec.num_patches)
        self.inter = np.exp(np.random.default_rng(0).normal(0.0, SIGMA, shape))

    def pruned(self, asked: Schedule, layout: str = "shrinking") -> PrunedViT:
        """Return the pruned PyTorch model."""
        return PrunedViT(self.vit, asked, self.inter, layout).eval()

    def left(self, asked: Schedule) -> np.ndarray:
        """Return the number of patches of each image after each layer, [images, depth]."""
        return patches_left_of(self.pruned(asked), self.images, "float32", len(self.images))

    def useful(self, asked: Schedule) -> float:
        """Return the mean useful multiply-adds per image."""
        return float(mean_macs(self.vit.spec, self.left(asked)).total)

    def executed(self, asked: Schedule, layout: str) -> float:
        """Return the mean executed multiply-adds per image, padding included."""
        return executed_macs(self.vit.spec, self.left(asked), layout, asked.keep)


def compared(pruning: Pruning, name: str, rho: float) -> dict[str, tuple[Schedule, str]]:
    """Return schedules and layouts by their names in the table."""
    star, alike = schedule(name, rho), schedule(name, rho, method=Method.A_STAR)
    equal = rho_for(
        lambda rho: schedule(name, rho, method=Method.A_STAR),
        pruning.useful,
        pruning.useful(star),
        IMAGE_BISECTIONS,
    )
    return {
        "dense": (dense(name).schedule, "shrinking"),
        "STAR": (star, "shrinking"),
        **{f"a-STAR, {layout}, equal mean MACs": (equal, layout) for layout in LAYOUTS},
        **{f"a-STAR, {layout}, equal rho": (alike, layout) for layout in LAYOUTS[:2]},
    }


def main() -> None:
    """Find rho, lower, measure, print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="deit_small_patch16_224", choices=MODELS, help="DeiT to measure.")
    parser.add_argument("--rho", type=float, default=0.7, help="The lowest retention rate of STAR.")
    parser.add_argument("--batch", type=int, default=8, help="Images per run.")
    parser.add_argument("--rounds", type=int, default=40, help="Timed rounds.")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads; 0 is one per physical core.")
    options = parser.parse_args()
    vit = peaked(options.model)
    pruning = Pruning(vit, varied(vit, options.batch))
    models = {
        "dense": (dense(options.model).schedule, "shrinking"),
        **compared(pruning, options.model, options.rho),
    }
    runners = {}
    for name, each in models.items():
        content = lower(pruning.pruned(*each), ONNXRUNTIME).SerializeToString()
        runners[name] = OnnxRuntimeRunner(content, threads=options.threads)
    times = throughput(
        runners, {IMAGES: pruning.images}, batch=options.batch, rounds=options.rounds, warmup=3
    )
    print(f"{options.model}, batch {options.batch}, {options.rounds} rounds\n")
    print(f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|")
    for name, (asked, layout) in models.items():
        macs = (pruning.useful(asked), pruning.executed(asked, layout))
        print(_row(name, asked, macs, times[name], times["STAR"]))


def _row(name: str, asked: Schedule, macs: tuple[float, float], time: Throughput, star: Throughput) -> str:
    against = ratio_of(time, star)
    low, high = against.quartiles
    cells = (
        f"{asked.rho:.3f}" if asked.rho else "",
        *(f"{each / 1e9:.3f}" for each in macs),
        f"{time.median_ms:.1f}",
        f"{against.median:.2f}",
        f"{low:.2f} to {high:.2f}",
    )
    return f"| {' | '.join((name, *cells))} |"


if __name__ == "__main__":
    main()
