r"""Fine-tune a model pruned in several ways, with several seeds. Markdown on stdout.

    star-export calibrate --model cifar_vit --images cifar10/train --out build/cifar_vit.safetensors
    python benchmarks/finetuning.py --model cifar_vit --images cifar10/train --eval-images cifar10/test \
        --calibration build/cifar_vit.safetensors --mac-reductions 0.3 0.5 --epochs 1 --out build/finetuning

At an equal share of the multiply-adds, the rho of each way is solved for; not every way reaches every share. With
--rhos, all ways keep as many patches as STAR at this rho, and ToMe, a-STAR and manual rates, whose counts are their
own, are left out. "dense" trains the unpruned model for as long, since training longer may gain by itself. Each run
leaves its weights and its result in --out: a second call only runs what is missing, and goes on where a run was
interrupted.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from ways import WAYS

from exporter.cli.flags import add_recipe, recipe_of
from exporter.cli.output import RichStages
from exporter.cli.setting_flags import add_flags, from_flags
from exporter.core.base.canonical_json import save_json, to_json
from exporter.core.base.errors import ArtefactError, ScheduleError, UserError
from exporter.core.base.vocabulary import Method
from exporter.jobs.finetune import finetune_model
from exporter.jobs.recipe import Recipe
from exporter.models.registry import describe
from exporter.training.settings import FinetuneSettings, preset_values

DENSE = "dense"
TRAINED = (DENSE, *WAYS)
COLUMNS = (
    "way",
    "GMACs",
    "top-1 before",
    "top-1 after",
    "by seed",
    "points lost after",
    "won back",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is missing, print the table, and return the exit code."""
    options = _options(argv)
    try:
        recipe = recipe_of(options, {"images": {"max_eval_images": 100_000}})
        start = preset_values(
            options.preset, recipe.model.name or None, recipe.model.checkpoint
        )
        settings = from_flags(FinetuneSettings, options, start)
        tables = {
            name: _table(amount, recipe, settings, options)
            for name, amount in _amounts(options)
        }
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for name, found in tables.items():
        print(f"{name}\n\n| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|")
        for way, results in found.items():
            print(f"| {way} | {' | '.join(_cells(results))} |")
        print()
    return 0


def _amounts(options: argparse.Namespace) -> Iterator[tuple[str, dict[str, float]]]:
    for share in options.mac_reductions:
        yield f"{share:.0%} saved", {"mac_reduction": share}
    for rho in options.rhos:
        yield f"rho {rho:g}", {"rho": rho}


def _table(
    amount: dict[str, float],
    recipe: Recipe,
    settings: FinetuneSettings,
    options: argparse.Namespace,
) -> dict[str, list[Any]]:
    ways = [
        way
        for way in options.ways or TRAINED
        if "rho" not in amount or way == DENSE or WAYS[way].counts_of_star
    ]
    depth = describe(recipe.model).spec.depth
    by_way: dict[str, list[Any]] = {way: [] for way in ways}
    for seed in range(options.seeds):
        for way, results in by_way.items():
            prune = {"seed": seed, **_choices(way, amount, depth)}
            changed = recipe.but(
                images={"seed": seed}, prune=prune, calibrate={"seed": seed}
            )
            try:
                results.append(
                    _result(way, changed, replace(settings, seed=seed), options.out)
                )
            except ScheduleError as error:
                print(f"{way}: {error}", file=sys.stderr)
    return by_way


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_recipe(parser)
    network = ("model", "checkpoint", "model_kwargs", "device")
    add_flags(
        parser,
        Recipe,
        (*network, "images", "eval_images", "max_eval_images", "calibration"),
    )
    add_flags(
        parser, FinetuneSettings, ("epochs", "batch_size", "lr", "amp", "workers")
    )
    parser.add_argument(
        "--mac-reductions",
        type=float,
        nargs="*",
        default=[],
        help="Shares of the MACs to save.",
    )
    parser.add_argument(
        "--rhos",
        type=float,
        nargs="*",
        default=[],
        help="Lowest rates, for equal counts.",
    )
    parser.add_argument("--preset", default="short", help="Settings to start from.")
    parser.add_argument("--ways", nargs="+", choices=TRAINED, help="Only these.")
    parser.add_argument("--seeds", type=int, default=3, help="Runs of each way.")
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        help="Folder of what was trained and measured.",
    )
    return parser.parse_args(argv)


def _result(way: str, recipe: Recipe, settings: FinetuneSettings, out: Path) -> Any:
    """Return the result of a run as JSON, read where a run of the same settings was finished before."""
    prune = recipe.prune
    amount = prune.rho if prune.mac_reduction is None else prune.mac_reduction
    words = f"{way} {amount} {settings.seed}".replace(",", "").split()
    path = out / f"{'-'.join(words)}.safetensors"
    job = {"recipe": recipe, "settings": settings}
    record = path.with_suffix(".json")
    if not record.exists():
        save_json(
            {
                **job,
                "result": finetune_model(recipe, settings, path, stages=RichStages()),
            },
            record,
        )
    content = json.loads(record.read_text(encoding="utf-8"))
    if json.loads(to_json(job)) != {name: content.get(name) for name in job}:
        raise ArtefactError(
            record,
            "a run of another recipe or other settings",
            "the same",
            "change --out",
        )
    return content["result"]


def _choices(way: str, amount: dict[str, float], depth: int) -> dict[str, Any]:
    """Return the recipe's settings of a way; the unpruned model is that of rho 1, at every amount."""
    if way == DENSE:
        return {"method": Method.STAR, "rho": 1.0}
    chosen = WAYS[way]
    scoring = {
        name: getattr(chosen.scoring, name) for name in ("method", "scorer", "reduce")
    }
    return {**scoring, "rates": chosen.rates(depth), **amount}


def _cells(results: Sequence[Any]) -> tuple[str, ...]:
    """Return means over the seeds, with the 95 % intervals of the first: seeds see the same images."""
    if not results:
        return ("out of reach", *("",) * (len(COLUMNS) - 2))
    before, after = (
        [result[when]["top1"] for result in results] for when in ("before", "after")
    )
    lost = np.mean([result["loss_after"]["loss_points"] for result in results])
    shares = [result["recovery"]["share"] for result in results]
    first = results[0]
    return (
        f"{first['gmacs_pruned']:.3f}",
        f"{np.mean(before):.2%} ({_interval(first['before']['interval'], 100)})",
        f"{np.mean(after):.2%} ({_interval(first['after']['interval'], 100)})",
        ", ".join(f"{100 * share:.2f}" for share in after),
        f"{lost:+.2f} ({_interval(first['loss_after']['loss_interval_points'])})",
        "" if None in shares else f"{np.mean(shares):.0%}",
    )


def _interval(ends: Sequence[float], scale: float = 1.0) -> str:
    low, high = (scale * end for end in ends)
    return f"{low:.1f} to {high:.1f}"


if __name__ == "__main__":
    sys.exit(main())
