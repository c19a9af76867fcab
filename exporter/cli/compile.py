"""Run the whole pipeline: calibrate, plan, prune, export, compare with PyTorch, and measure.

Settings come from flags, from a TOML recipe, or from both; a flag overrides the recipe. Exits with 1 if an exported
model does not agree with its PyTorch reference. `tune` finds how to prune, how much, and the target.

Several methods, as `--method matching,star,a-star`, are compared: each is compiled into a folder of its own in DIR,
all are measured in one run, and one report shows them side by side.
"""

import argparse
import sys

from exporter.cli.flags import (
    AMOUNT_FLAGS,
    IMAGE_FLAGS,
    MEASURING_FLAGS,
    MODEL_FLAGS,
    OUTPUT_FLAGS,
    SCHEDULE_FLAGS,
    add_dry_run,
    add_out,
    add_recipe,
    recipe_of,
    show_dry_run,
)
from exporter.cli.output import show
from exporter.cli.setting_flags import add_flags
from exporter.core.base.errors import RecipeError
from exporter.core.base.vocabulary import Method
from exporter.jobs.checks import check_compile, recipes_of
from exporter.jobs.network import Network
from exporter.jobs.recipe import Recipe

EXAMPLES = (
    "star-export compile --model digits_vit --images photos/ --mac-reduction 0.4 --out build/digits",
    "star-export compile --recipe engines/demo.toml --rho 0.5 --out build/demo",
    "star-export compile --model digits_vit --images photos/ --mac-reduction 0.4 --method star,tome --out both",
    "star-export compile --model digits_vit --images photos/ --mac-reduction 0.4 --out build/digits --dry-run",
)
FAILS = "an exported model does not agree with PyTorch"
# After an interruption, the same command goes on.
RESUMES = True

# Where the arguments have the method, or several with commas.
METHOD = "prune.method"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    add_recipe(parser)
    add_out(parser, "The export folder.", "DIR")
    add_flags(
        parser,
        Recipe,
        (*MODEL_FLAGS, *OUTPUT_FLAGS, *IMAGE_FLAGS, "eval_images", "max_eval_images"),
    )
    how = (*AMOUNT_FLAGS, "calibration", "refit", *SCHEDULE_FLAGS, *MEASURING_FLAGS)
    add_flags(parser, Recipe, how)
    add_dry_run(parser)


def run(arguments: argparse.Namespace) -> int:
    """Compile and print the report; the exit code is 0 if all models pass the parity check, else 1."""
    stages, out = arguments.stages, arguments.out
    names = getattr(arguments, METHOD, "").split(",")
    methods = [Method.named(name) for name in names] if len(names) > 1 else []
    if methods:
        setattr(arguments, METHOD, methods[0])
    recipe = recipe_of(arguments)
    if arguments.dry_run and methods:
        raise RecipeError("--dry-run", f"{len(methods)} methods", "one method")
    for method_recipe in recipes_of(recipe, methods) if methods else (recipe,):
        network = Network.of(method_recipe)
        check_compile(network, network.policy(refits=True), out)
        network.check_model()
    with stages.stage("libraries"):
        from exporter.cli.reports import print_reports
        from exporter.jobs.compile import (
            compare_methods,
            compile_model,
            dry_compile,
        )

    if arguments.dry_run:
        return show_dry_run(arguments, dry_compile(recipe, out))
    command = ("star-export", *sys.argv[1:])
    if methods:
        reports = compare_methods(recipe, methods, out, stages=stages, command=command)
        show(arguments, reports, lambda: print_reports(reports, out))
    else:
        report = compile_model(recipe, out, stages=stages, command=command)
        reports = {report.schedule.method: report}
        show(arguments, report, lambda: print_reports(reports, out))
    return 0 if all(result.passed for result in reports.values()) else 1
