"""Compute how many patches each layer keeps from average cosine similarity (ACS) and rho, and count the MACs.

Needs no weights, and no PyTorch for a name that `star-export models` lists. STAR needs a calibration, or a JSON
list with one ACS value per layer; the others need neither.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from exporter.calibration.record import warn_of_few_images
from exporter.cli.flags import (
    AMOUNT_FLAGS,
    MODEL_FLAGS,
    OUTPUT_FLAGS,
    SCHEDULE_FLAGS,
    add_file,
    add_recipe,
    print_schedule,
    recipe_of,
)
from exporter.cli.output import rho_words, show
from exporter.cli.setting_flags import add_flags
from exporter.core.base.canonical_json import read_json, save_json
from exporter.core.base.errors import ArtefactError, RecipeError, reason_of
from exporter.core.base.files import writable_file
from exporter.core.base.records import ModelSpec
from exporter.core.base.vocabulary import Method
from exporter.core.schedule.checks import log_oddities
from exporter.core.schedule.macs import dense_macs, schedule_macs
from exporter.core.schedule.plan import schedule_of
from exporter.core.schedule.policy import Need, Policy
from exporter.jobs.network import Network
from exporter.jobs.recipe import Recipe

if TYPE_CHECKING:
    from exporter.calibration.record import Calibration

    # How to prune, which model, and the calibration that is given.
    Start: TypeAlias = tuple[Policy, ModelSpec, Calibration | None]

EXAMPLES = (
    "star-export plan --model deit_base_patch16_224 --rates 4=0.7 7=0.49 10=0.343",
    "star-export plan --model deit_small_patch16_224 --mac-reduction 0.4 --out schedule.json",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    add_recipe(parser)
    # no weights are needed
    model = tuple(name for name in MODEL_FLAGS if name != "device")
    add_flags(
        parser,
        Recipe,
        (*model, *OUTPUT_FLAGS, *AMOUNT_FLAGS, *SCHEDULE_FLAGS, "calibration"),
    )
    add_file(parser, "--acs", "A JSON list with one ACS value per layer.")
    add_file(parser, "--out", "The schedule to write, as JSON.")


def run(arguments: argparse.Namespace) -> int:
    """Compute and print the schedule; the exit code is 0."""
    recipe = recipe_of(arguments)
    if arguments.acs and recipe.prune.method is None:
        recipe = recipe.but(prune={"method": Method.STAR})
    out = writable_file(arguments.out) if arguments.out else None
    policy, spec, calibration = _listed(recipe) or _opened(recipe)
    policy.check_amount("plan")
    _check_sources(policy, recipe.prune.calibration, arguments.acs)
    acs = _read_acs(arguments.acs) if arguments.acs else ()
    schedule = schedule_of(policy, spec, calibration, acs=acs)
    log_oddities(schedule, policy, spec)
    warn_of_few_images(schedule, calibration)
    dense, pruned = dense_macs(spec), schedule_macs(spec, schedule)
    came = dense_macs(spec.as_it_came)
    if out:
        save_json(schedule, out)
    record = {
        "model": spec.name,
        "rho": schedule.rho,
        "rates": schedule.rates,
        "keep": schedule.keep,
        "embedded": schedule.embedded,
        "gmacs_dense": dense.gmacs,
        "gmacs_as_it_came": came.gmacs,
        "gmacs_pruned": pruned.gmacs,
        "gmacs_scoring": pruned.scoring / 1e9,
    }
    title = (
        f"{spec.name}{rho_words(schedule)}: {came.gmacs:.3f} → {pruned.gmacs:.3f} GMACs"
    )
    if came != dense:
        title += f" ({dense.gmacs:.3f} by the last layer alone)"
    show(arguments, record, lambda: print_schedule(title, schedule))
    return 0


def _listed(recipe: Recipe) -> "Start | None":
    """Return what a plan starts from where the list of models has its spec, without PyTorch; else None."""
    from exporter.calibration.record import check_calibration, load_calibration
    from exporter.models.listed import listed

    answer = listed(recipe.model)
    if answer is None or answer.spec is None:
        return None
    calibration, file = None, recipe.prune.calibration
    if file is not None:
        calibration = load_calibration(file)
        check_calibration(calibration, answer.spec, "")
    return recipe.policy(), answer.spec, calibration


def _opened(recipe: Recipe) -> "Start":
    """Return what a plan starts from where the model has to be built, without weights."""
    Network.of(recipe).check_model()
    from exporter.core.vit.spec import with_outputs
    from exporter.jobs.opened import open_recipe

    variant = open_recipe(recipe)
    network = variant.network
    spec = with_outputs(network.described, network.recipe.model.outputs).spec
    calibration = network.calibration_for(network.described.spec)
    assert variant.policy is not None  # the dense model is not planned
    return variant.policy, spec, calibration and calibration.of_first(spec.depth)


def _check_sources(policy: Policy, calibration: Path | None, acs: Path | None) -> None:
    """Raise RecipeError unless ACS has one source where rates follow from it, and no file of its own elsewhere."""
    given = {"--acs": acs is not None, "--calibration": calibration is not None}
    if acs is not None and policy.curve is not None:
        raise RecipeError(
            "plan",
            f"--acs for {policy.method}",
            "no ACS",
            "its rates follow from rho alone",
        )
    if (sum(given.values()) == 1) if Need.ACS in policy.needs else acs is None:
        return
    got = " and ".join(flag for flag, is_given in given.items() if is_given)
    raise RecipeError(
        "plan", got or "no ACS", "--acs or --calibration with --rho or --mac-reduction"
    )


def _read_acs(path: Path) -> list[float]:
    try:
        return msgspec.convert(read_json(path), list[float])
    except (OSError, ValueError) as error:
        expected = "a JSON list with one number per layer"
        raise ArtefactError(path, reason_of(error), expected) from None
