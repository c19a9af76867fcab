"""How the embeddings of a pruned model agree with the dense one's: each scorer and reduction. Markdown on stdout.

    python benchmarks/embeddings.py --calibration build/cifar.safetensors --images test --rhos 0.9 0.7 0.5

The model is taken as a tower: its embedding is what its classifier reads. Cosine is the mean over images;
retrieval@1 is the share of images whose nearest other image, among the dense model's embeddings, stays the same.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from exporter.calibration.record import load_calibration
from exporter.data.batches import first_images
from exporter.data.images import sample
from exporter.data.source import images_at
from exporter.evaluation.embeddings import Agreement, Embeddings, agreement_of, embed_each
from exporter.evaluation.parity.reference import reference_runner
from exporter.models.base import PrunableViT
from exporter.models.outputs import with_outputs
from exporter.models.registry import ModelRequest, load
from exporter.pruning.pruned_vit import PrunedViT
from exporter.schedule.plan import ScheduleSettings
from exporter.tensor_names import EMBEDDING
from exporter.vocabulary import InputKind, Method
from exporter.workflows import steps
from exporter.workflows.planning import Planner

BATCH = 50
SCORERS = ("fused", "intra", "inter", "received", "similarity", "random", "pairs")
REDUCTIONS = ("drop", "merge")


def tower(name: str) -> PrunableViT:
    """Return a model whose output is its embedding."""
    return with_outputs(load(ModelRequest(name)), (EMBEDDING,))


def agreements(
    vit: PrunableViT, calibration_file: Path, folder: Path, rhos: list[float], count: int
) -> Iterator[tuple[str, str, float, Agreement]]:
    """Yield scorer, reduction, rho and the agreement with the dense model on `count` images."""
    calibration = load_calibration(calibration_file)
    drawn = sample(images_at(folder), count, seed=0)
    images = first_images(drawn.files, vit.spec.preprocessing, InputKind.FLOAT32, count)

    def embedded(pruned: PrunedViT) -> Embeddings:
        parts = (images[start : start + BATCH] for start in range(0, len(images), BATCH))
        batches = (((part,), np.full(len(part), -1)) for part in parts)
        return embed_each([reference_runner(pruned)], batches, [EMBEDDING])[0]

    dense = embedded(steps.dense(vit))
    for scorer in SCORERS:
        for reduce in REDUCTIONS if scorer != "pairs" else REDUCTIONS[1:]:
            planner = Planner.of(
                vit.spec, ScheduleSettings(scorer, method=Method.STAR, reduce=reduce), calibration
            )
            for rho in rhos:
                pruned = steps.prune(vit, planner.of_rho(rho), calibration)
                yield scorer, reduce, rho, agreement_of(dense, embedded(pruned))


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="cifar_vit", help="A timm name or a bundled model.")
    parser.add_argument("--calibration", type=Path, required=True, help="Of this model.")
    parser.add_argument("--images", type=Path, required=True, help="Images that it was not calibrated on.")
    parser.add_argument("--rhos", type=float, nargs="+", default=[0.9, 0.7, 0.5], help="The rhos.")
    parser.add_argument("--count", type=int, default=1000, help="Number of images, drawn by a seed.")
    options = parser.parse_args()
    vit = tower(options.model)
    print(
        "| scorer | others | rho | cosine | lowest | retrieval@1 | 95 % interval |\n|---|---|---|---|---|---|---|"
    )
    for scorer, reduce, rho, each in agreements(
        vit, options.calibration, options.images, options.rhos, options.count
    ):
        low, high = each.retrieval_interval or (0.0, 1.0)
        cells = (
            scorer,
            reduce,
            f"{rho:g}",
            f"{each.embedding_cosine:.4f}",
            f"{each.embedding_cosine_least:.3f}",
        )
        print(
            "|",
            " | ".join((*cells, f"{each.retrieval_at_1:.1%}", f"{low:.1%} to {high:.1%}")),
            "|",
            flush=True,
        )


if __name__ == "__main__":
    main()
