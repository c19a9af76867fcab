"""Remove attention layers and activations (BoundaryDPT), and find how many of each to remove, and which.

A unit is one attention layer or one activation. `depth choose` finds the units by training. `depth apply` removes
those that you name. The weights that both write record what was removed, so every verb with --checkpoint restores
it. Fine-tune the unmerged form, then apply once more to merge it.
"""

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from exporter.cli.flags import (
    MODEL_FLAGS,
    add_action,
    add_file,
    add_out,
    add_recipe,
    recipe_of,
)
from exporter.cli.output import (
    print_lines,
    print_table,
    show,
    skipped_lines,
)
from exporter.cli.parser import add_common
from exporter.cli.setting_flags import add_flags, from_flags
from exporter.cli.training_flags import TRAINING_TABLES, add_training, training_of
from exporter.core.base.errors import RecipeError
from exporter.core.base.progress import SILENT, Stages
from exporter.depth.plan import ChoiceSettings, DepthPlan
from exporter.jobs.checks import check_training_images
from exporter.jobs.network import TRAIN_IMAGES, Network
from exporter.jobs.recipe import Recipe, needed
from exporter.models.identity import weights_file

if TYPE_CHECKING:
    from exporter.jobs.depth import Applied, Chosen, Found

CHOOSE = (
    "star-export depth choose --model digits_vit --images train/ --eval-images val/ --units 4 --out c.safetensors",
    "star-export depth choose --model digits_vit --images train/ --attention-units 2 --activation-units 2"
    " --out c.safetensors",
    "star-export depth choose --model deit_base_patch16_224 --samples samples.json --units 8",
)
APPLY = "star-export depth apply --model digits_vit --attention 5,6 --out smaller.safetensors"
EXAMPLES = (CHOOSE[0], APPLY)

# Stages are short: the samples need an order of models, not their best accuracy.
PRESET = "short"

# The powers of a and t in the predictor, in the order of its coefficients.
TERMS = tuple(
    (total - power, power) for total in range(5) for power in range(total + 1)
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their flags."""
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    _add_choose(actions)
    _add_apply(actions)
    for action in actions.choices.values():
        add_common(action, default=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    """Carry out the action and print; the exit code is 0."""
    return int(arguments.act(arguments))


def _add_choose(actions: Any) -> None:
    summary = "Train to find which units to remove within a budget, and remove them."
    action = add_action(actions, "choose", summary, *CHOOSE)
    add_recipe(action, TRAINING_TABLES)
    add_flags(action, Recipe, (*MODEL_FLAGS, "images", "eval_images"))
    # None is a number only where it is given.
    add_flags(
        action,
        ChoiceSettings,
        defaults=dict.fromkeys(("units", "attention_units", "activation_units")),
    )
    add_file(
        action,
        "--samples",
        'Samples of before, a JSON list of {"attention": share removed, "activation": share removed, '
        '"accuracy": percent}: none are measured then.',
    )
    add_file(
        action,
        "--out",
        "The weights to write, unmerged, .safetensors; samples are kept beside them, in a folder .samples. "
        "Without it, only the split of --units by --samples is printed.",
    )
    add_training(action, PRESET)
    action.set_defaults(act=_choose)


def _add_apply(actions: Any) -> None:
    apply = add_action(
        actions,
        "apply",
        "Remove units, and write the weights of the smaller model.",
        APPLY,
    )
    add_recipe(apply)
    add_flags(apply, Recipe, [name for name in MODEL_FLAGS if name != "device"])
    add_flags(apply, DepthPlan)
    apply.add_argument(
        "--unmerged",
        action="store_true",
        help="Do not merge linear layers: the form for fine-tuning.",
    )
    add_out(apply, "The weights, .safetensors.")
    apply.set_defaults(act=_apply)


def _apply(arguments: argparse.Namespace) -> int:
    plan, model = from_flags(DepthPlan, arguments), _network(arguments).recipe.model
    from exporter.jobs.depth import apply_to

    done = apply_to(model, plan, arguments.out, unmerged=arguments.unmerged)
    show(arguments, done, lambda: print_lines(_applied_lines(done)))
    return 0


def _choose(arguments: argparse.Namespace) -> int:
    choice = from_flags(ChoiceSettings, arguments)
    if arguments.samples is not None and not choice.units:
        raise RecipeError(
            "--samples", "a file beside numbers of each type", "none, or --units N"
        )
    if choice.units and arguments.out is None:
        split = _split(arguments, choice)
        show(arguments, split, lambda: _print_found(split))
        return 0
    done = _chosen(arguments, choice)
    show(arguments, done, lambda: _print(done))
    return 0


def _split(arguments: argparse.Namespace, choice: ChoiceSettings) -> "Found":
    """Split the budget by the samples: no weights are read."""
    from exporter.depth.collect import read_samples
    from exporter.jobs.depth import split_of

    samples = read_samples(
        needed(arguments.samples, "depth choose", "--out FILE, or --samples FILE")
    )
    return split_of(_network(arguments).described, samples, choice)


def _chosen(arguments: argparse.Namespace, choice: ChoiceSettings) -> "Chosen":
    """Choose the units; all settings are checked before."""
    out = needed(arguments.out, "--out", "a file for the weights")
    recipe = recipe_of(arguments)
    training = training_of(arguments, recipe)
    network = Network.of(recipe)
    if choice.units and arguments.samples is None:
        check_training_images(network)
    needed(recipe.images.images, "--images", TRAIN_IMAGES)
    network.check_images()
    weights_file(out)
    network = _network(arguments, arguments.stages)
    from exporter.depth.collect import read_samples
    from exporter.jobs.depth import choose_to

    samples = None if arguments.samples is None else read_samples(arguments.samples)
    return choose_to(network, choice, training, out, samples=samples)


def _network(arguments: argparse.Namespace, stages: Stages = SILENT) -> Network:
    recipe = recipe_of(arguments)
    Network.of(recipe).check_model()
    from exporter.jobs.opened import open_recipe

    return open_recipe(recipe, stages).network


def _print(done: "Chosen") -> None:
    if collected := done.collected:
        rows = []
        for sample in collected.samples:
            attention, activation = sample.plan.attention, sample.plan.activation
            rows.append(
                (_layers(attention), _layers(activation), f"{sample.accuracy:.2f}")
            )
        title = f"{len(rows)} samples, {collected.samples[0].images} images"
        print_table(
            title, ("without attention", "without activation", "top-1, %"), rows
        )
        skipped = {
            "training": collected.training_skipped,
            "evaluation": collected.skipped,
        }
        print_lines(skipped_lines(skipped))
    if done.found is not None:
        _print_found(done.found)
    for unit, scores in vars(done.importance).items():
        values = ", ".join(
            f"{layer}: {score:.2e}" for layer, score in enumerate(scores, start=1)
        )
        print_lines([f"importance of {unit} by layer: {values}"])
    print_lines(
        [
            *_applied_lines(done.applied),
            *skipped_lines({"training": done.training_skipped}),
        ]
    )


def _print_found(chosen: "Found") -> None:
    """Print the error of each degree, the polynomial, and every split with its prediction."""
    errors = [(degree, f"{error:.3f}") for degree, error in chosen.rmse.items()]
    print_table(
        "accuracy as a polynomial", ("degree", "leave-two-out error, points"), errors
    )
    print_lines(polynomial_lines(chosen))
    rows = [
        (split.attention, split.activation, f"{split.accuracy:.2f}")
        for split in chosen.splits
    ]
    units = chosen.best.attention + chosen.best.activation
    print_table(f"{units} units", ("attention", "activation", "predicted, %"), rows)
    best, degree = chosen.best, chosen.predictor.degree
    print_lines(
        [
            f"best: {best.attention} attention layers and {best.activation} activations, "
            f"{best.accuracy:.2f} % predicted (degree {degree}, error {chosen.rmse[degree]:.2f} points)"
        ]
    )


def polynomial_lines(chosen: "Found") -> Iterator[str]:
    """Return the polynomial, term by term."""
    yield f"degree {chosen.predictor.degree}; a and t are the shares of attention layers and activations that stay"
    for (a, t), coefficient in zip(TERMS, chosen.predictor.coefficients, strict=False):
        yield f"{coefficient:+12.4f} · a^{a} · t^{t}"


def _applied_lines(done: "Applied") -> list[str]:
    plan, form = done.depth.plan, "merged" if done.depth.merged else "unmerged"
    return [
        f"{done.file}: without attention {list(plan.attention)}, activation {list(plan.activation)}, {form}",
        f"GMACs {done.gmacs_before:.3f} → {done.gmacs_after:.3f}, "
        f"parameters {done.parameters_before:,} → {done.parameters_after:,}",
    ]


def _layers(layers: Sequence[int]) -> str:
    """Return layers in words, for a table."""
    return " ".join(map(str, layers)) or "-"
