"""Remove attention layers and activations (BoundaryDPT), or find how many of each to remove.

`depth apply` writes weights that say what was removed: every verb that takes --checkpoint restores it. Fine-tune
the --unmerged form, and apply once more to merge it. `depth search` needs samples: the accuracies of some models.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from exporter.settings import add_flags, from_flags
from exporter.workflows.recipe import Recipe, needed

if TYPE_CHECKING:
    from exporter.workflows.depth import Applied, Found

__all__ = ["add_arguments", "run"]

MODEL = ("model", "checkpoint", "num_classes", "model_kwargs", "preprocess")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their flags."""
    from exporter.depth.plan import DepthPlan  # noqa: PLC0415
    from exporter.depth.robustness import NoiseSettings  # noqa: PLC0415

    actions = parser.add_subparsers(metavar="ACTION", required=True)
    apply = actions.add_parser("apply", help="Remove units, and write the weights of the smaller model.")
    add_flags(apply, Recipe, MODEL)
    add_flags(apply, DepthPlan)
    apply.add_argument(
        "--unmerged", action="store_true", help="Keep linear layers apart: the form for fine-tuning."
    )
    apply.add_argument("--out", type=Path, required=True, metavar="FILE", help="The weights, .safetensors.")
    apply.set_defaults(act=_apply)
    search = actions.add_parser("search", help="Find how many units of each type to remove.")
    search.add_argument(
        "--samples", type=Path, required=True, metavar="FILE",
        help='JSON: a list of {"attention": share removed, "activation": share removed, "accuracy": percent}.',
    )  # fmt: skip
    search.add_argument("--layers", type=int, required=True, metavar="N", help="Blocks of the model.")
    search.add_argument("--units", type=int, required=True, metavar="K", help="Units to remove in all.")
    add_flags(search, NoiseSettings)
    search.set_defaults(act=_search)
    for action in (apply, search):
        action.add_argument(
            "--json", action="store_true", default=argparse.SUPPRESS, help="Print the result as JSON."
        )


def run(arguments: argparse.Namespace) -> int:
    """Carry out the action and print; the exit code is 0."""
    return int(arguments.act(arguments))


def _apply(arguments: argparse.Namespace) -> int:
    from exporter.cli.output import print_json, print_lines  # noqa: PLC0415
    from exporter.depth.plan import DepthPlan  # noqa: PLC0415
    from exporter.workflows.depth import apply_to  # noqa: PLC0415
    from exporter.workflows.resolve import resolve  # noqa: PLC0415

    job = resolve(from_flags(Recipe, arguments))
    needed(job.model.name or None, "--model", "a timm name or a bundled model")
    done = apply_to(job.model, from_flags(DepthPlan, arguments), arguments.out, unmerged=arguments.unmerged)
    if arguments.json:
        print_json(done)
    else:
        print_lines(_applied(done))
    return 0


def _applied(done: "Applied") -> list[str]:
    plan, form = done.depth.plan, "merged" if done.depth.merged else "unmerged"
    return [
        f"{done.file}: without attention {list(plan.attention)}, activation {list(plan.activation)}, {form}",
        f"GMACs {done.gmacs_before:.3f} → {done.gmacs_after:.3f}, "
        f"parameters {done.parameters_before:,} → {done.parameters_after:,}",
    ]


def _search(arguments: argparse.Namespace) -> int:
    from exporter.cli.output import print_json, print_lines, print_table  # noqa: PLC0415
    from exporter.depth.robustness import NoiseSettings  # noqa: PLC0415
    from exporter.workflows.depth import read_samples, split_for  # noqa: PLC0415

    samples = read_samples(arguments.samples)
    found = split_for(samples, arguments.layers, arguments.units, from_flags(NoiseSettings, arguments))
    if arguments.json:
        print_json(found)
        return 0
    rows = [(each.attention, each.activation, f"{each.accuracy:.2f}") for each in found.splits]
    print_table(f"{arguments.units} units", ("attention", "activation", "predicted, %"), rows)
    print_lines(_found(found))
    return 0


def _found(found: "Found") -> list[str]:
    best, noise, degree = found.best, found.robustness, found.predictor.degree
    return [
        f"best: {best.attention} attention layers and {best.activation} activations, "
        f"{best.accuracy:.2f} % predicted (degree {degree}, error {found.rmse[degree]:.2f} points)",
        f"with noise: the same split in {noise.same:.0%} of {noise.trials} trials, "
        f"one layer off in {noise.one_off:.0%}",
    ]
