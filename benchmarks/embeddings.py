"""How the embeddings of a pruned model agree with the dense one's: each scorer and reduction. Markdown on stdout.

    python benchmarks/embeddings.py --calibrate-on train --images test --rhos 0.9 0.7 0.5

The model is taken as a tower: its embedding is what its classifier reads. Relevance starts at the length of the
embedding and, with `--classes`, for comparison also at the classifier's logits. Cosine is the mean over images;
retrieval@1 is the share of images whose nearest other image, among the dense model's embeddings, stays the same.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from exporter import CalibrationSettings, calibrate
from exporter.data.batches import first_images
from exporter.data.images import sample
from exporter.data.source import images_at
from exporter.evaluation.embeddings import Agreement, Embeddings, agreement_of, embed_each
from exporter.evaluation.parity.reference import reference_runner
from exporter.models.base import PrunableViT
from exporter.models.outputs import with_outputs
from exporter.models.registry import ModelRequest, adapt, load
from exporter.pruning.pruned_vit import PrunedViT
from exporter.schedule.plan import Prune
from exporter.tensor_names import EMBEDDING
from exporter.vocabulary import InputKind, Method
from exporter.workflows import steps

BATCH = 50
SCORERS = ("fused", "intra", "inter", "received", "similarity", "random", "pairs")
BY_RELEVANCE = ("fused", "inter")
REDUCTIONS = ("drop", "merge")


def tower(name: str) -> PrunableViT:
    """Return a model without its classifier: its output is its embedding, in which relevance starts."""
    whole = load(ModelRequest(name))
    bare: Any = whole.model
    bare.reset_classifier(0)
    vit = adapt(bare, name=name)
    vit.spec = replace(vit.spec, preprocessing=whole.spec.preprocessing)
    return vit


def classifier(name: str) -> PrunableViT:
    """Return the same model with its classifier, in whose logits relevance starts; its output is the embedding."""
    return with_outputs(load(ModelRequest(name)), (EMBEDDING,))


def agreements(
    vit: PrunableViT, scorers: Sequence[str], options: argparse.Namespace
) -> Iterator[tuple[str, str, float, Agreement]]:
    """Yield scorer, reduction, rho and the agreement with the dense model."""
    settings = CalibrationSettings(max_images=options.calibrate_images)
    calibration = calibrate(vit, options.calibrate_on, settings)
    drawn = sample(images_at(options.images), options.count, seed=0)
    images = first_images(drawn.files, vit.spec.preprocessing, InputKind.FLOAT32, options.count)

    def embedded(pruned: PrunedViT) -> Embeddings:
        parts = (images[start : start + BATCH] for start in range(0, len(images), BATCH))
        batches = (((part,), np.full(len(part), -1)) for part in parts)
        return embed_each([reference_runner(pruned)], batches, [EMBEDDING])[0]

    dense = embedded(steps.dense(vit))
    for scorer in scorers:
        for reduce in REDUCTIONS if scorer != "pairs" else REDUCTIONS[1:]:
            for rho in options.rhos:
                how = Prune(scorer, method=Method.STAR, reduce=reduce, rho=rho)
                pruned = steps.prune(vit, how.plan(vit.spec, calibration, told=False), calibration)
                yield scorer, reduce, rho, agreement_of(dense, embedded(pruned))


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="cifar_vit", help="A timm name or a bundled model.")
    parser.add_argument("--calibrate-on", type=Path, required=True, help="Images for relevance and ACS.")
    parser.add_argument("--calibrate-images", type=int, default=128, help="How many of them.")
    parser.add_argument("--classes", action="store_true", help="Also relevance that starts at the logits.")
    parser.add_argument("--images", type=Path, required=True, help="Images that it was not calibrated on.")
    parser.add_argument("--rhos", type=float, nargs="+", default=[0.9, 0.7, 0.5], help="The rhos.")
    parser.add_argument("--count", type=int, default=1000, help="Number of images, drawn by a seed.")
    options = parser.parse_args()
    print(
        "| scorer | others | rho | cosine | lowest | retrieval@1 | 95 % interval |",
        "|---" * 7 + "|",
        sep="\n",
    )
    table(agreements(tower(options.model), SCORERS, options))
    if options.classes:
        table(agreements(classifier(options.model), BY_RELEVANCE, options), " of the classes")


def table(rows: Iterator[tuple[str, str, float, Agreement]], which: str = "") -> None:
    """Print rows as they come."""
    for scorer, reduce, rho, each in rows:
        low, high = each.retrieval_interval or (0.0, 1.0)
        cosines = f"{each.embedding_cosine:.4f} | {each.embedding_cosine_least:.3f}"
        retrieval = f"{each.retrieval_at_1:.1%} | {low:.1%} to {high:.1%}"
        print(f"| {scorer}{which} | {reduce} | {rho:g} | {cosines} | {retrieval} |", flush=True)


if __name__ == "__main__":
    main()
