"""The action of `depth` that finds units and rho together."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from exporter.cli.flags import MODEL, add_action
from exporter.settings import add_flags, from_flags
from exporter.workflows.recipes.recipe import Recipe

if TYPE_CHECKING:
    from exporter.depth.joint import Pair
    from exporter.workflows.depth.joint import Joint

__all__ = ["add_joint"]


def add_joint(actions: Any) -> None:
    """Declare the action."""
    from exporter.workflows.depth.joint_settings import JointSettings

    action = add_action(
        actions,
        "joint",
        "Find the number of units and rho together, for a saving of multiply-adds or a latency.",
        "star-export depth joint --collected build/depth --model digits_vit --mac-reduction 0.5 --out build/joint",
    )
    action.add_argument(
        "--collected", type=Path, required=True, metavar="DIR", help="The folder of `depth collect --rhos`."
    )
    add_flags(action, JointSettings)
    add_flags(action, Recipe, MODEL)
    add_flags(
        action.add_argument_group("how a latency is measured"),
        Recipe,
        ("target", "batch", "rounds", "threads", "images"),
    )
    action.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="Folder of joint.json and front.png."
    )
    action.set_defaults(act=_joint)


def _joint(arguments: argparse.Namespace) -> int:
    from exporter.cli.output import print_json, print_lines, print_table
    from exporter.cli.stages import RichStages
    from exporter.workflows.depth.joint import joint_to
    from exporter.workflows.depth.joint_settings import JointSettings
    from exporter.workflows.recipes.resolve import resolve

    job = resolve(from_flags(Recipe, arguments))
    job.check_named()
    settings = from_flags(JointSettings, arguments)
    found = joint_to(job, settings, arguments.collected, arguments.out, RichStages(quiet=arguments.quiet))
    if arguments.json:
        print_json(found)
        return 0
    columns = ("attention", "activation", "rho", "GMACs", "predicted, %")
    rows = [_row(pair) for pair in found.candidates]
    print_table(f"{found.model}: at most {found.best.gmacs:.3f} GMACs", columns, rows)
    print_lines(_lines(found, arguments.out))
    return 0


def _row(pair: "Pair") -> tuple[str, ...]:
    cells = (f"{pair.rho:.3f}", f"{pair.gmacs:.3f}", f"{pair.accuracy:.2f}")
    return (str(pair.attention), str(pair.activation), *cells)


def _lines(found: "Joint", out: Path) -> Iterator[str]:
    best, degree = found.best, found.predictor.degree
    for each in found.timed:
        name = f"{each.pair.attention} + {each.pair.activation} units, rho {each.pair.rho:.3f}"
        yield f"{name}: {each.median_ms:.2f} ms a batch, the whole model {each.dense_ms:.2f} ms"
    yield (
        f"best: {best.attention} attention layers, {best.activation} activations and rho {best.rho:.3f}: "
        f"{best.gmacs:.3f} of {found.dense_gmacs:.3f} GMACs, {best.accuracy:.2f} % predicted "
        f"(degree {degree}, error {found.rmse[degree]:.2f} points)"
    )
    yield f"{out / 'front.png'}: the front"
