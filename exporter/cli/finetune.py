"""Fine-tune a pruned model with the unpruned one as teacher, and measure how much of the lost accuracy it recovers.

Writes weights together with their pruning settings, so other verbs need only --checkpoint. An interrupted run
continues when started again. Runs on several GPUs or machines under `accelerate launch -m exporter finetune ...`.
"""

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from exporter.cli.flags import (
    MODEL_FLAGS,
    add_dry_run,
    add_file,
    add_out,
    add_recipe,
    recipe_of,
    show_dry_run,
)
from exporter.cli.output import (
    percent_interval,
    print_lines,
    print_table,
    schedule_words,
    show,
    skipped_lines,
)
from exporter.cli.parser import Parser
from exporter.cli.setting_flags import add_flags
from exporter.cli.training_flags import TRAINING_TABLES, add_training, training_of
from exporter.jobs.checks import check_finetune
from exporter.jobs.network import Network
from exporter.jobs.recipe import Recipe
from exporter.models.checkpoint import check_weights
from exporter.report.words import points

if TYPE_CHECKING:
    from exporter.jobs.finetune import FinetuneResult

EXAMPLES = (
    "star-export finetune --model digits_vit --images train/ --eval-images val/ --mac-reduction 0.5"
    " --out tuned.safetensors",
)
FAILS = "no epoch is better than the pruned model before training"

# The processes of a launcher share the images.
SPREAD = True
# After an interruption, the same command goes on.
RESUMES = True
DEFAULT_PRESET = "paper"


def add_arguments(parser: Parser) -> None:
    """Declare the flags."""
    add_recipe(parser, TRAINING_TABLES)
    images = ("images", "max_images", "eval_images")
    add_flags(
        parser,
        Recipe,
        (*MODEL_FLAGS, *images, "rho", "mac_reduction", "method", "scorer"),
    )
    add_out(parser, "The weights to write, .safetensors.")
    text = "Weights of the teacher; by default those of the unpruned model."
    add_file(parser, "--teacher", text)
    add_dry_run(parser)
    add_training(parser, DEFAULT_PRESET)


def run(arguments: argparse.Namespace) -> int:
    """Train, measure and print; the exit code is 1 where training has made nothing better."""
    stages = arguments.stages
    recipe, out, teacher = recipe_of(arguments), arguments.out, arguments.teacher
    settings = training_of(arguments, recipe)
    network = Network.of(recipe)
    check_finetune(network, network.policy(), settings.batch_size, out)
    network.check_model()
    check_weights(teacher)
    with stages.stage("libraries"):
        from exporter.jobs.finetune import dry_finetune, finetune_model

    if arguments.dry_run:
        return show_dry_run(
            arguments, dry_finetune(recipe, settings, out, teacher=teacher)
        )
    result = finetune_model(recipe, settings, out, teacher=teacher, stages=stages)
    show(arguments, result, lambda: _print(result))
    return 0 if result.trained.epoch else 1


def _print(result: "FinetuneResult") -> None:
    models = {
        "dense": (result.dense, None),
        "pruned": (result.before, result.loss_before.loss_points),
        "fine-tuned": (result.after, result.loss_after.loss_points),
    }
    rows = []
    for name, (accuracy, lost) in models.items():
        change = "" if lost is None else points(lost)
        rows.append(
            (name, f"{accuracy.top1:.2%}", percent_interval(accuracy.interval), change)
        )
    title = f"{result.model}, {schedule_words(result.schedule)}: {result.dense.images} images"
    print_table(title, ("model", "top-1", "95 % interval", "points"), rows)
    print_lines(_lines(result))


def _beside_goal(points: float) -> str:
    return f"{abs(points):.2f} points {'below' if points < 0 else 'above'}"


def _lines(result: "FinetuneResult") -> Iterator[str]:
    recovery = result.recovery
    if recovery.share is None:
        yield "no loss by pruning is shown: there is nothing to recover"
    else:
        low, high = map(_beside_goal, recovery.surplus_interval_points)
        yield (
            f"{recovery.share:.0%} of the loss is recovered; the goal of {recovery.goal:.0%} is {recovery.status}: "
            f"top-1 is {_beside_goal(recovery.surplus_points)} it, with one-sided 95 % limits {low} and {high} it"
        )
    yield from skipped_lines(
        {"training": result.trained.skipped, "evaluation": result.skipped}
    )
    trained = result.trained
    if trained.epoch:
        yield f"{trained.file}: epoch {trained.epoch}; compile it with --checkpoint alone"
    else:
        yield (
            f"{trained.file}: no epoch is better than the pruned model before training, whose weights these are; "
            f"try --lr {trained.settings.lr / 10:.2g}, or more than {trained.images + trained.held_out} images"
        )
