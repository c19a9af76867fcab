"""Find the fastest model on this machine within a given accuracy loss, or the most accurate one for a time.

--images are used only for calibration. --eval-images are split once: the search uses one half; the reported loss is
measured on the other. An interrupted search continues when started again. Exits with 1 if nothing reaches the goal.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

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
    print_lines,
    print_table,
    show,
    skipped_lines,
)
from exporter.cli.setting_flags import add_flags, from_flags
from exporter.core.base.files import writable_folder
from exporter.core.base.targets import ONNXRUNTIME
from exporter.core.base.vocabulary import Status
from exporter.core.schedule.prune import Prune
from exporter.jobs.network import Network
from exporter.jobs.recipe import PRUNE, Recipe
from exporter.report import words
from exporter.tuning.choice import (
    USUAL,
    Judged,
    Point,
    TuneResult,
    TuneSettings,
    images_needed,
)
from exporter.tuning.recipes import check_named, check_search, recipes_with
from exporter.tuning.ways import AXES, OWN

EXAMPLES = (
    "star-export tune --model digits_vit --images train/ --eval-images val/ --max-drop 1 --out build/tune",
    "star-export tune --model digits_vit --images train/ --eval-images val/ --speedup 1.5 --out build/tune",
)
FAILS = "no model reaches the goal, or the compiled model does not agree with PyTorch"

# The processes of a launcher share the runs for accuracy.
SPREAD = True
# After an interruption, the same command goes on.
RESUMES = True
# More images to measure on than other verbs take, since half of them judge, and fewer to calibrate on.
DEFAULTS = {"images": {"max_eval_images": 4000}, "calibrate": {"max_images": 128}}
PINS = (*AXES, "rho", "mac_reduction")

COLUMNS = (
    "model",
    "target",
    "img/s",
    "× unpruned",
    "quartiles",
    "× fp32",
    "points",
    "with two errors",
    "same class",
    "MB",
    "",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    add_recipe(parser)
    add_flags(parser, TuneSettings)
    measured = ("images", "eval_images", "max_eval_images", "batch", "rounds")
    add_flags(parser, Recipe, (*MODEL_FLAGS, *measured), DEFAULTS["images"])
    text = "More checkpoints of the model to try: without some layers, or fine-tuned."
    add_file(parser, "--weights", text, nargs="+", default=())
    add_flags(
        parser.add_argument_group("fix an axis of the search"), Prune, PINS, table=PRUNE
    )
    add_out(parser, "Folder for all results.", "DIR")
    add_dry_run(parser)


def run(arguments: argparse.Namespace) -> int:
    """Search and print; the exit code is 1 where no model reaches the goal, or the choice is none after all."""
    stages = arguments.stages
    settings, weights = from_flags(TuneSettings, arguments), arguments.weights
    recipe, out = recipe_of(arguments, DEFAULTS), arguments.out
    _check(recipe, settings, weights, out)
    with stages.stage("libraries"):
        from exporter.tuning.tune import dry_tune, tune

    if arguments.dry_run:
        return show_dry_run(arguments, dry_tune(recipe, settings, out, weights=weights))
    command = ("star-export", *sys.argv[1:])
    result = tune(
        recipe, settings, out, weights=weights, stages=stages, command=command
    )
    show(arguments, result, lambda: _print(result))
    missed = result.judged is None or result.judged.status == Status.MISSED
    return 1 if missed or result.parity is False else 0


def _check(
    recipe: Recipe, settings: TuneSettings, weights: Sequence[Path], out: Path
) -> None:
    """Check what needs no model, of the recipe and of those of the other checkpoints."""
    for name, other in recipes_with(recipe, weights).items():
        network = Network.of(other)
        if name == OWN:
            check_search(network, network.policy(), settings)
            network.check_model()
        else:
            check_named(network)
    writable_folder(out)


def _print(result: TuneResult) -> None:
    """Print every point that was timed, and the choice."""
    timed = {point.candidate.label for point in result.tried}
    rows = []
    for name, rate in result.unpruned.items():
        if f"unpruned, {name}" not in timed:
            rows.append(("unpruned", name, f"{rate:.1f}", *[""] * 8))
    for point in result.tried:
        rows.append(_row(point, "chosen" if point == result.choice else ""))
    images = f"{result.images} images to choose by"
    print_table(
        f"{result.model}: {result.candidates} candidates, {images}", COLUMNS, rows
    )
    print_lines(_lines(result))


def _row(point: Point, mark: str) -> tuple[str, ...]:
    pruning = ("", "")
    if point.candidate.prune is not None:
        quartiles = words.interval(point.speed_up.quartiles)
        pruning = (f"{point.speed_up.median:.2f}", quartiles)
    speed = (f"{point.images_per_s:.1f}", *pruning, f"{point.gain.median:.2f}")
    loss = (
        words.points(point.loss_points),
        words.points(point.margin_points),
        f"{point.loss.agreement:.2%}",
    )
    size = f"{point.timed.file_bytes / 1e6:.1f}"
    return (
        point.candidate.on("").label,
        point.candidate.target,
        *speed,
        *loss,
        size,
        mark,
    )


def _lines(result: TuneResult) -> Iterator[str]:
    if result.choice is None or result.judged is None:
        yield _nearest(result)
    else:
        yield _chosen(result.choice, result.judged)
        yield from _unshown(result.judged, result.settings)
        faster = [
            point
            for point in result.tried
            if point.images_per_s > result.choice.images_per_s
        ]
        after = min(faster, key=lambda point: point.images_per_s, default=None)
        if after is not None:
            speed = f"{after.images_per_s:.1f} images/s"
            loss = f"{words.points(after.loss_points)} points"
            yield f"the next faster one: {after.candidate.label}: {speed}, {loss} on the images to choose by"
        yield f"recipe: {result.recipe}"
    yield from skipped_lines(
        {"calibration": result.calibration_skipped, "evaluation": result.skipped}
    )
    if result.parity is False:
        yield "the compiled model does not agree with PyTorch: see its report"


def _chosen(choice: Point, judged: Judged) -> str:
    loss = judged.loss
    return (
        f"chosen: {choice.candidate.label}: {_speed(choice)}. On {loss.images} images that no choice has read, "
        f"{words.loss(loss)}; {loss.agreement:.2%} have the unpruned model's class: {judged.status}"
    )


def _speed(point: Point) -> str:
    """Return what pruning gains on the target, then the whole gain in its factors."""
    whole, by_pruning = point.gain.median, point.speed_up.median
    base = "the unpruned fp32 export on ONNX Runtime"
    if point.candidate.prune is None:
        return f"{point.images_per_s:.1f} images/s, {whole:.2f} × {base}"
    pruned = f"{words.speed_up(point.speed_up)}, {point.images_per_s:.1f} images/s"
    if point.candidate.target == ONNXRUNTIME.name:
        return pruned
    exported = f"{point.candidate.target} export"
    made_of = words.factors(whole / by_pruning, by_pruning, exported)
    return f"{pruned}; {whole:.2f} × {base}: {made_of}"


def _unshown(judged: Judged, settings: TuneSettings) -> Iterator[str]:
    if judged.status == Status.NOT_SHOWN and settings.max_drop is not None:
        needed = f"{images_needed(settings.max_drop, USUAL)} such images if {USUAL:.0%} of the answers change"
        yield f"to show a loss within {settings.max_drop:g} points takes {needed}: twice as many --eval-images"


def _nearest(result: TuneResult) -> str:
    fastest = max(result.tried, key=lambda point: point.gain.median)
    if result.settings.max_drop is None:
        reached = f"{fastest.median_ms:.3g} ms, {_speed(fastest)}"
        return (
            f"no model is that fast; the fastest: {fastest.candidate.label}: {reached}"
        )
    faster = [point for point in result.tried if point.gain.median > 1] or [fastest]
    near = min(faster, key=lambda point: point.loss_points)
    margin = f"with two errors {words.points(near.margin_points)}"
    cost = f"{_speed(near)}; {words.points(near.loss_points)} points ({margin})"
    limit = f"{result.settings.max_drop:g} points"
    return f"no faster model is within {limit}; the nearest: {near.candidate.label}: {cost}"
