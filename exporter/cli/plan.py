"""Turn average cosine similarity and rho into the patches that each layer keeps, and count the MACs.

Needs no weights: a JSON list of one ACS value a layer is enough, as is a calibration.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from exporter.cli.flags import MODEL, SCHEDULE
from exporter.errors import ArtefactError, RecipeError
from exporter.settings import add_flags, from_flags
from exporter.workflows.recipe import Recipe

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    add_flags(parser, Recipe, (*MODEL, *SCHEDULE, "seed", "calibration", "interpolate"))
    parser.add_argument("--acs", type=Path, metavar="FILE", help="A JSON list of one ACS value a layer.")
    rates = (
        "Rates at 1-based layers in the place of rho, e.g. 4=0.7 7=0.49; the other layers keep everything."
    )
    parser.add_argument("--rates", nargs="+", metavar="LAYER=RATE", help=rates)
    parser.add_argument("--out", type=Path, metavar="FILE", help="Where the schedule goes, as JSON.")


def run(arguments: argparse.Namespace) -> int:
    """Plan; 0."""
    from exporter.cli.output import print_json, print_table  # noqa: PLC0415
    from exporter.models.registry import describe  # noqa: PLC0415
    from exporter.records import save_json  # noqa: PLC0415
    from exporter.schedule.macs import dense_macs, pruned_macs  # noqa: PLC0415
    from exporter.workflows import steps  # noqa: PLC0415

    recipe = from_flags(Recipe, arguments)
    spec = describe(steps.model_request(recipe)).spec
    schedule = _schedule(arguments, recipe, spec)
    dense, pruned = dense_macs(spec), pruned_macs(spec, schedule.keep)
    if arguments.out:
        save_json(schedule, arguments.out)
    answer = {
        "model": spec.name,
        "rho": schedule.rho,
        "rates": schedule.rates,
        "keep": schedule.keep,
        "gmacs_dense": dense.gmacs,
        "gmacs_pruned": pruned.gmacs,
        "gmacs_scoring": pruned.scoring / 1e9,
    }
    if arguments.json:
        print_json(answer)
        return 0
    rho = "" if schedule.rho is None else f", rho {schedule.rho:.4g}"
    title = f"{spec.name}{rho}: {dense.gmacs:.2f} → {pruned.gmacs:.2f} GMACs"
    rows = [
        (layer, f"{rate:.4f}", keep)
        for layer, (rate, keep) in enumerate(zip(schedule.rates, schedule.keep, strict=True), start=1)
    ]
    print_table(title, ("layer", "rate", "patches kept"), rows)
    return 0


def _schedule(arguments: argparse.Namespace, recipe: Recipe, spec: Any) -> Any:
    from exporter.schedule.plan import manual_schedule  # noqa: PLC0415
    from exporter.workflows import steps  # noqa: PLC0415

    sources = [arguments.acs is not None, recipe.calibration is not None, arguments.rates is not None]
    if sum(sources) != 1:
        raise RecipeError("plan", f"{sum(sources)} of --acs, --calibration, --rates", "one of them")
    if arguments.rates is not None:
        return manual_schedule(spec, dict(map(_rate, arguments.rates)), steps.schedule_settings(recipe, spec))
    if recipe.calibration is not None:
        calibration = steps.fitting_calibration(recipe.calibration, recipe, spec)
        return steps.plan(recipe, spec, calibration.acs.tolist(), calibration.inter_sha256)
    return steps.plan(recipe, spec, _read_acs(arguments.acs))


def _rate(text: str) -> tuple[int, float]:
    layer, _, rate = text.partition("=")
    try:
        return int(layer), float(rate)
    except ValueError:
        raise RecipeError("--rates", repr(text), "LAYER=RATE, e.g. 4=0.7") from None


def _read_acs(path: Path) -> list[float]:
    expected = "a JSON list of one number a layer"
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ArtefactError(str(path), str(error), expected) from None
    if not isinstance(values, list) or not all(type(value) in (int, float) for value in values):
        raise ArtefactError(str(path), "something else", expected)
    return [float(value) for value in values]
