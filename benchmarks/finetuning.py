r"""Fine-tune a model pruned in several ways, at equal patch counts, with several seeds. Markdown on stdout.

    star-export calibrate --model cifar_vit --images cifar10/train --out build/cifar_vit.safetensors
    python benchmarks/finetuning.py --model cifar_vit --images cifar10/train --eval-images cifar10/test \
        --calibration build/cifar_vit.safetensors --rho 0.5 --epochs 1 --out build/finetuning/cifar_vit

All ways keep as many patches as STAR at this rho; "dense" trains the unpruned model for as long, since training
longer may gain by itself. Each run leaves its weights and its result in --out: a second call only runs what is
missing, and goes on where a run was interrupted.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from exporter.cli.output import RichStages
from exporter.cli.training_flags import trained_like
from exporter.formats.canonical_json import save_json
from exporter.settings import add_flags, from_flags
from exporter.training.settings import FinetuneSettings
from exporter.vocabulary import Method
from exporter.workflows.finetune import finetune_model
from exporter.workflows.recipe import Recipe

WAYS: dict[str, dict[str, Any]] = {
    "dense": {"rho": 1.0},
    "pairs, merge-weighted": {"scorer": "pairs", "reduce": "merge-weighted"},
    "fused, merge-weighted": {"scorer": "fused", "reduce": "merge-weighted"},
    "fused, drop": {"scorer": "fused", "reduce": "drop"},
    "class attention, drop": {"scorer": "intra", "reduce": "drop"},
    "inter-layer, drop": {"scorer": "inter", "reduce": "drop"},
    "random, drop": {"scorer": "random", "reduce": "drop"},
}
COLUMNS = ("way", "GMACs", "top-1 before", "top-1 after, mean", "by seed", "points lost", "won back")


def main() -> None:
    """Run what is missing, and print the table."""
    options = _options()
    recipe = from_flags(Recipe, options)
    settings = from_flags(FinetuneSettings, options, trained_like(options.preset, recipe.model))
    found: dict[str, list[Any]] = {way: [] for way in options.ways or WAYS}
    for seed in range(options.seeds):
        for way, results in found.items():
            results.append(_result(way, recipe, replace(settings, seed=seed), options.out))
    print(f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|")
    for way, results in found.items():
        print(f"| {way} | {' | '.join(_cells(results))} |")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    own = ("model", "images", "eval_images", "max_eval_images", "calibration", "rho")
    add_flags(parser, Recipe, own)
    add_flags(parser, FinetuneSettings, ("epochs", "batch_size", "lr", "amp", "workers"))
    parser.set_defaults(max_eval_images=100_000)
    parser.add_argument("--preset", default="short", help="Settings to start from.")
    parser.add_argument("--ways", nargs="+", choices=WAYS, help="Only these.")
    parser.add_argument("--seeds", type=int, default=3, help="Runs of each way.")
    parser.add_argument("--out", type=Path, required=True, help="Folder of what was trained and measured.")
    return parser.parse_args()


def _result(way: str, recipe: Recipe, settings: FinetuneSettings, out: Path) -> Any:
    """Return the result of a run as JSON, read where the run was finished before."""
    path = out / f"{way.replace(', ', '-').replace(' ', '-')}-{settings.seed}.safetensors"
    if not path.with_suffix(".json").exists():
        own = replace(recipe, **{"method": Method.STAR, "seed": settings.seed, **WAYS[way]})
        save_json(finetune_model(own, settings, path, stages=RichStages()), path.with_suffix(".json"))
    return json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))


def _cells(found: Sequence[Any]) -> tuple[str, ...]:
    after = [each["top1_after"] for each in found]
    lost = np.mean([each["loss_after"]["loss_points"] for each in found])
    shares = [each["recovery"]["share"] for each in found]
    return (
        f"{found[0]['gmacs_pruned']:.3f}",
        f"{np.mean([each['top1_before'] for each in found]):.2%}",
        f"{np.mean(after):.2%}",
        ", ".join(f"{100 * each:.2f}" for each in after),
        f"{lost:+.2f}",
        "" if None in shares else f"{np.mean(shares):.0%}",
    )


if __name__ == "__main__":
    main()
