"""A dense head on a pruned tower: a linear segmentation head reads the output `grid` on ONNX Runtime.

    python benchmarks/segmentation.py --rates 2=0.7 3=0.5

The tower has DINOv2's architecture, small and with random weights; scenes are boxes of three colours on noise.
The head is fitted by least squares on the dense tower's tokens. Prints the share of patches whose class is right,
by the `grid` of each tower, and by its `tokens` with zeros in the other places.
"""

import argparse
from dataclasses import dataclass
from typing import Any

import numpy as np
import timm
import torch
from torch import nn

import exporter
from exporter.models.base import PrunableViT
from exporter.models.outputs import with_outputs
from exporter.models.registry import adapt
from exporter.pruning.pruned_vit import PrunedViT
from exporter.runtimes.onnxruntime.runner import OnnxRuntimeRunner
from exporter.schedule.plan import Prune, keep_everything, manual_schedule
from exporter.tensor_names import GRID, IMAGES, TOKENS, token_positions_name

SIDE, PATCH, CLASSES = 64, 8, 4

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Outcome:
    """Shares of patches whose class is right, and the lowest cosine of any token with PyTorch's."""

    accuracy: float
    accuracy_zeros: float
    cosine: float
    gmacs: float


def tower(seed: int = 0) -> PrunableViT:
    """Return the tower with `grid` and `tokens` as outputs."""
    torch.manual_seed(seed)
    shape = {"img_size": SIDE, "patch_size": PATCH, "embed_dim": 96, "depth": 4, "num_heads": 3}
    model = timm.create_model("vit_small_patch14_dinov2", **shape, init_values=1.0)
    for parameter in model.parameters():
        if parameter.ndim > 1:
            nn.init.normal_(parameter, std=0.05)
    return with_outputs(adapt(model, "segmenter"), (GRID, TOKENS))


def scenes(count: int, seed: int) -> tuple[Array, Array]:
    """Return normalised images [count, 3, SIDE, SIDE], and the class of each patch, [count, patches]."""
    generator, across = np.random.default_rng(seed), SIDE // PATCH
    images = generator.normal(0, 0.5, (count, 3, SIDE, SIDE)).astype(np.float32)
    labels = np.zeros((count, across, across), np.int64)
    for image in range(count):
        for label in range(1, CLASSES):
            (top, left), (high, wide) = generator.integers(0, across - 2, 2), generator.integers(2, 4, 2)
            labels[image, top : top + high, left : left + wide] = label
    shown = labels.repeat(PATCH, axis=1).repeat(PATCH, axis=2)
    for label in range(1, CLASSES):
        images[:, label - 1] += 2.0 * (shown == label)
    return images, labels.reshape(count, -1)


def fitted(features: Array, labels: Array, ridge: float = 1e-2) -> Array:
    """Return a linear head [channels + 1, classes] by least squares on one-hot classes."""
    rows, wanted = _with_bias(features).reshape(-1, features.shape[-1] + 1), np.eye(CLASSES)[labels.ravel()]
    return np.linalg.solve(rows.T @ rows + ridge * np.eye(rows.shape[1]), rows.T @ wanted)


def accuracy(head: Array, features: Array, labels: Array) -> float:
    """Return the share of patches whose class is right."""
    return float(((_with_bias(features) @ head).argmax(axis=-1) == labels).mean())


def exported(pruned: PrunedViT, images: Array) -> dict[str, Array]:
    """Return the outputs of the exported model on ONNX Runtime."""
    with OnnxRuntimeRunner(
        exporter.export(pruned).SerializeToString(), name=pruned.method, threads=1
    ) as runner:
        return runner.run({IMAGES: images})


def measured(pruned: PrunedViT, head: Array, images: Array, labels: Array) -> Outcome:
    """Export a pruned tower, and let the head read what ONNX Runtime gives."""
    given = exported(pruned, images)
    with torch.inference_mode():
        own = pruned.trace(torch.from_numpy(images)).outputs[GRID].numpy()
    product = (own * given[GRID]).sum(-1)
    cosine = product / (np.linalg.norm(own, axis=-1) * np.linalg.norm(given[GRID], axis=-1))
    positions = given[token_positions_name(TOKENS)]
    holes = exporter.to_grid(given[TOKENS], positions, np.zeros_like(given[GRID]))
    return Outcome(
        accuracy(head, given[GRID], labels),
        accuracy(head, holes, labels),
        float(cosine.min()),
        pruned.macs.gmacs,
    )


def compared(rates: dict[int, float], train: int = 64, test: int = 64) -> dict[str, Outcome]:
    """Return the outcome of the dense tower, and of the pruned ones by the way that they reduce patches."""
    vit, (images, labels) = tower(), scenes(train, seed=0)
    dense = PrunedViT(vit, keep_everything(vit.spec)).eval()
    with torch.inference_mode():
        head = fitted(dense.trace(torch.from_numpy(images)).outputs[GRID].numpy(), labels)
    unseen = scenes(test, seed=1)
    found = {"dense": measured(dense, head, *unseen)}
    for way in ("drop", "merge"):
        schedule = manual_schedule(vit.spec, rates, Prune("intra", reduce=way))
        found[way] = measured(PrunedViT(vit, schedule).eval(), head, *unseen)
    return found


def _with_bias(features: Array) -> Array:
    return np.concatenate([features, np.ones_like(features[..., :1])], axis=-1).astype(np.float64)


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rates", nargs="+", default=["2=0.7", "3=0.5"], help="LAYER=RATE, layers from 1.")
    options = parser.parse_args()
    pairs = (each.split("=") for each in options.rates)
    print("| tower | GMACs | patches right | with zeros for the others | lowest cosine with PyTorch |")
    print("|---|---|---|---|---|")
    for name, each in compared({int(layer): float(rate) for layer, rate in pairs}).items():
        shares = f"{each.accuracy:.1%} | {each.accuracy_zeros:.1%}"
        print(f"| {name} | {each.gmacs:.4f} | {shares} | {each.cosine:.7f} |")


if __name__ == "__main__":
    main()
