r"""Compare the ways to merge at equal multiply-adds: points lost, divergence, and time. Markdown on stdout.

    python benchmarks/counts.py --images cifar_vit=cifar10/test digits_vit=build/digits/held_out \
        --ways tome matching matching:1 matching:1,2,3,4,5 --shares 0.2 0.4 0.6 0.7 --rounds 20

A way is a method, and of matching also how many layers merge or which ones do, with the same rate in each, by
default as the share says. "matching:diffrate" has the counts that DiffRate published for DeiT-S, by share of the
depth, scaled to save the share. Shares are of the multiply-adds of the model as its owner runs it
(`ModelSpec.as_it_came`). All see the same images. Times are of ONNX Runtime, one thread, batch 8, in turns with the
dense model.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from exporter.core.base.errors import ScheduleError
from exporter.core.base.intervals import loss_interval
from exporter.core.base.targets import ONNXRUNTIME
from exporter.core.base.tensor_names import IMAGES
from exporter.core.base.vocabulary import Method
from exporter.core.lower.pipeline import lower
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.schedule.plan import keep_everything, schedule_of
from exporter.core.schedule.policy import resolve
from exporter.core.schedule.prune import Prune
from exporter.core.verify.onnxruntime_runner import OnnxRuntimeRunner
from exporter.core.vit.protocol import PrunableViT
from exporter.data.batches import batches, noise
from exporter.data.images import sample
from exporter.data.source import images_at
from exporter.jobs.network import Network
from exporter.jobs.recipe import Images, Recipe
from exporter.jobs.variant import Variant
from exporter.measure.benchmark import ratio_of, throughput
from exporter.models.request import ModelRequest

HEADER = """\
| saved | method | patches left | points lost | 95 % | divergence | 95 % | time | quartiles |
|---|---|---|---|---|---|---|---|---|"""

# Tokens of 197 behind each layer of DeiT-S at 2.3 of 4.6 GMACs (DiffRate, Chen et al., ICCV 2023; `merge_kept_num`
# in compression_rate.json of OpenGVLab/DiffRate). What DiffRate drops by attention, a way here merges.
DIFFRATE = (197, 180, 156, 127, 109, 98, 80, 66, 52, 37, 31, 3)

# Of layers that all have the same one, the share sets it.
ANY_RATE = 0.5

Array = np.ndarray[Any, Any]


def loaded(vit: PrunableViT, place: Path, most: int) -> Sequence[tuple[Array, Array]]:
    """Read the images in batches, a fixed draw of them, with their classes."""
    folder = sample(
        images_at(place, vit.spec.num_classes, names=vit.spec.class_names), most, 0
    )
    return list(batches(folder.files, vit.spec.preprocessing, "float32", 100))


def log_chances(model: PrunedViT, images: Sequence[tuple[Array, Array]]) -> Array:
    """Return the logarithm of each class's chance, [images, classes]."""
    with torch.inference_mode():
        chances = [
            model.trace(torch.from_numpy(pixels)).logits.log_softmax(-1)
            for pixels, _ in images
        ]
    return torch.cat(chances).numpy()


def variants(
    networks: Sequence[Network], share: float, ways: Sequence[str]
) -> dict[str, Variant]:
    """Return each way that reaches this share, as is and, where images are given, refitted as `compile` does.

    The networks differ in the draw of these images: each way is refitted once on each.
    """
    network = networks[0]
    planned = {}
    for way in ways:
        method, _, detail = way.partition(":")
        settings = Prune(method=Method(method), mac_reduction=share)
        if detail == "diffrate":
            settings = replace(settings, rates=diffrate(network.vit.spec.depth))
        elif "," in detail:
            layers = map(int, detail.split(","))
            settings = replace(settings, rates=dict.fromkeys(layers, ANY_RATE))
        elif detail:
            settings = replace(settings, merges=int(detail))
        name, policy = way.replace(":", ", "), resolve(settings)
        try:
            schedule_of(policy, network.vit.spec)
        except ScheduleError as error:
            print(f"{way}: {error}")
            continue
        planned[name] = Variant(network, policy)
        if network.recipe.images.images is not None:
            refits = replace(policy, refit=True)
            for drawn in networks:
                seed = drawn.recipe.images.seed
                planned[f"{name}, refitted, draw {seed}"] = Variant(drawn, refits)
    return planned


def diffrate(depth: int) -> dict[int, float]:
    """Return DiffRate's rates of a model of this depth, by layer from 1."""
    left = np.array([197, *DIFFRATE]) - 1
    places = np.linspace(0, len(DIFFRATE), depth + 1)
    shares = np.interp(places, range(len(left)), left)
    # What is left behind the last layer, nobody reads.
    rates = shares[1:] / shares[:-1]
    return dict(enumerate(rates[:-1].tolist(), start=1))


def times(models: Mapping[str, PrunedViT], rounds: int) -> dict[str, tuple[str, str]]:
    """Return the time of each model over that of the dense one, and its quartiles."""
    runners = {
        name: OnnxRuntimeRunner(
            lower(model.eval(), ONNXRUNTIME).SerializeToString(), threads=1
        )
        for name, model in models.items()
    }
    feed = {IMAGES: noise(next(iter(models.values())).vit.spec, "float32", 8)}
    speeds = throughput(runners, feed, batch=8, rounds=rounds, warmup=3)
    cells = {}
    for name, speed in speeds.items():
        ratio = ratio_of(speed, speeds["dense"])
        quartiles = " to ".join(f"{limit:.3f}" for limit in ratio.quartiles)
        cells[name] = f"{ratio.median:.3f}", quartiles
    return cells


def row(dense: Array, pruned: Array, labels: Array) -> tuple[str, ...]:
    """Return the points lost and the mean divergence, each with its 95 % interval."""
    right = dense.argmax(1) == labels
    still = pruned.argmax(1) == labels
    lost = int((right & ~still).sum())
    gained = int((still & ~right).sum())
    images = len(labels)
    low, high = (100 * limit for limit in loss_interval(lost, gained, images))
    apart = (np.exp(dense) * (dense - pruned)).sum(1)
    mean = float(apart.mean())
    half = 1.96 * float(apart.std()) / images**0.5
    return (
        f"{100 * (lost - gained) / images:.2f}",
        f"{low:.2f} to {high:.2f}",
        f"{mean:.4f}",
        f"{mean - half:.4f} to {mean + half:.4f}",
    )


def main() -> None:
    """Measure, and print a table for each model."""
    options = _options()
    unlabelled = dict(pair.split("=", 1) for pair in options.refit)
    for model, place in (pair.split("=", 1) for pair in options.images):
        read = Path(unlabelled[model]) if model in unlabelled else None
        draws = [Images(images=read, seed=seed) for seed in options.seeds]
        recipes = [Recipe(model=ModelRequest(model), images=draw) for draw in draws]
        networks = [Network(recipe) for recipe in recipes]
        network = networks[0]
        images = loaded(network.vit, Path(place), options.max_images)
        labels = np.concatenate([classes for _, classes in images])
        unpruned = PrunedViT(network.vit, keep_everything(network.vit.spec))
        dense = log_chances(unpruned, images)
        top1 = 100 * float((dense.argmax(1) == labels).mean())
        print(f"\n{model}, {len(labels)} images, dense {top1:.2f} %\n")
        print(HEADER, flush=True)
        for share in options.shares:
            planned = variants(networks, share, options.ways)
            models = {name: variant.pruned.eval() for name, variant in planned.items()}
            timed = {}
            if options.rounds:
                timed = times({"dense": unpruned, **models}, options.rounds)
            for name, pruned in models.items():
                counts = ", ".join(f"{count}" for _, _, count in pruned.schedule.rows)
                losses = row(dense, log_chances(pruned, images), labels)
                cells = " | ".join((*losses, *timed.get(name, ("", ""))))
                print(f"| {share:.0%} | {name} | {counts} | {cells} |", flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    folders: Any = {"nargs": "+", "metavar": "MODEL=FOLDER"}
    add("--images", required=True, help="Labelled images.", **folders)
    shares = [0.2, 0.4, 0.6]
    add("--shares", nargs="+", type=float, default=shares, help="Shares to save.")
    ways, way = ["matching", "tome"], "METHOD[:MERGES|:LAYER,LAYER,...|:diffrate]"
    add("--ways", nargs="+", default=ways, metavar=way, help="Ways.")
    refit = "Images to refit each way on, too, without labels."
    add("--refit", default=[], help=refit, **folders)
    seeds = "Draws of the images to refit on."
    add("--seeds", nargs="+", type=int, default=[0], help=seeds)
    add("--max-images", type=int, default=2000, help="Images of each folder.")
    add("--rounds", type=int, default=0, help="Timed rounds; 0: no times.")
    return parser.parse_args()


if __name__ == "__main__":
    main()
