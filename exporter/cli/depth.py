"""Remove attention layers and activations (BoundaryDPT), or find how many of each to remove, and which.

A unit is one attention layer or one activation. `depth collect` measures models with fewer and fewer units. From
these samples, `depth search` finds how many units of each type to remove. `depth choose` finds the layers by
training. `depth apply` removes the layers that you name. The weights that `apply` and `choose` write record what
was removed, so every verb with --checkpoint restores it. Fine-tune the unmerged form, then apply once more to merge
it.
"""

import argparse
from pathlib import Path
from typing import Any

from exporter.cli import depth_training
from exporter.cli.depth_lines import applied_lines, fitted_lines, found_line
from exporter.cli.flags import add_action, add_common
from exporter.settings import add_flags, from_flags
from exporter.workflows.recipes.recipe import Recipe

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES = (
    depth_training.COLLECT,
    "star-export depth search --samples build/depth/samples.json --layers 6 --units 3",
    "star-export depth apply --model digits_vit --attention 5,6 --out smaller.safetensors",
)

MODEL = ("model", "checkpoint", "num_classes", "model_kwargs", "preprocess")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their flags."""
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    depth_training.add_collect(actions)
    _add_fit(actions)
    _add_search(actions)
    depth_training.add_choose(actions)
    _add_apply(actions)
    for action in actions.choices.values():
        add_common(action, default=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    """Carry out the action and print; the exit code is 0."""
    return int(arguments.act(arguments))


def _add_apply(actions: Any) -> None:
    from exporter.depth.plan import DepthPlan

    apply = add_action(
        actions, "apply", "Remove units, and write the weights of the smaller model.", EXAMPLES[2]
    )
    add_flags(apply, Recipe, MODEL)
    add_flags(apply, DepthPlan)
    apply.add_argument(
        "--unmerged", action="store_true", help="Do not merge linear layers: the form for fine-tuning."
    )
    apply.add_argument("--out", type=Path, required=True, metavar="FILE", help="The weights, .safetensors.")
    apply.set_defaults(act=_apply)


def _add_fit(actions: Any) -> None:
    example = "star-export depth fit --samples build/depth/samples.json"
    fit = add_action(actions, "fit", "Fit the predictor of accuracy to samples.", example)
    _add_samples(fit)
    fit.set_defaults(act=_fit)


def _add_search(actions: Any) -> None:
    search = add_action(actions, "search", "Find how many units of each type to remove.", EXAMPLES[1])
    _add_samples(search)
    search.add_argument("--layers", type=int, required=True, metavar="N", help="Blocks of the model.")
    search.add_argument("--units", type=int, required=True, metavar="K", help="Units to remove in all.")
    search.set_defaults(act=_search)


def _add_samples(action: argparse.ArgumentParser) -> None:
    action.add_argument(
        "--samples", type=Path, required=True, metavar="FILE",
        help='JSON, as of collect: a list of {"attention": share removed, "activation": share removed, '
        '"accuracy": percent}.',
    )  # fmt: skip


def _apply(arguments: argparse.Namespace) -> int:
    from exporter.cli.output import print_json, print_lines
    from exporter.depth.plan import DepthPlan
    from exporter.workflows.depth.steps import apply_to
    from exporter.workflows.recipes.resolve import resolve

    job = resolve(from_flags(Recipe, arguments))
    job.check_named()
    done = apply_to(job.model, from_flags(DepthPlan, arguments), arguments.out, unmerged=arguments.unmerged)
    if arguments.json:
        print_json(done)
    else:
        print_lines(applied_lines(done))
    return 0


def _fit(arguments: argparse.Namespace) -> int:
    from exporter.cli.output import print_json, print_lines, print_table
    from exporter.workflows.depth.steps import fitted, read_samples

    samples = read_samples(arguments.samples)
    found = fitted(samples)
    if arguments.json:
        print_json(found)
        return 0
    rows = [(degree, f"{error:.3f}") for degree, error in found.rmse.items()]
    print_table(f"{len(samples)} samples", ("degree", "leave-two-out error, points"), rows)
    print_lines(fitted_lines(found))
    return 0


def _search(arguments: argparse.Namespace) -> int:
    from exporter.cli.output import print_json, print_lines, print_table
    from exporter.workflows.depth.steps import read_samples, split_for

    samples = read_samples(arguments.samples)
    found = split_for(samples, arguments.layers, arguments.units)
    if arguments.json:
        print_json(found)
        return 0
    rows = [(each.attention, each.activation, f"{each.accuracy:.2f}") for each in found.splits]
    print_table(f"{arguments.units} units", ("attention", "activation", "predicted, %"), rows)
    print_lines([found_line(found)])
    return 0
