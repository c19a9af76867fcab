"""The recipes in `engines/`: every model, method, rho and precision that its README names resolves."""

import argparse
import re
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from exporter.cli import compile as compile_verb
from exporter.cli.flags import recipe_of
from exporter.cli.main import build_parser
from exporter.core.base.records import ModelSpec
from exporter.core.base.targets import TARGETS as ALL_TARGETS
from exporter.core.base.targets import TENSORRT
from exporter.core.base.vocabulary import Layout
from exporter.core.schedule.macs import dense_macs, pruned_macs
from exporter.core.schedule.plan import schedule_of
from exporter.core.schedule.policy import resolve
from exporter.jobs.opened import open_recipe
from exporter.jobs.recipe import Recipe
from exporter.models.registry import describe
from exporter.models.request import ModelRequest
from tests.core.schedule.published import MODELS

ENGINES = Path(__file__).parent.parent / "engines"
README = (ENGINES / "README.md").read_text(encoding="utf-8")
# Recipe, its rho, points of top-1 without fine-tuning, the paper's other rho, the a-STAR recipe's MAC reduction.
ROW = r"^\| `(\w+)\.star\.toml` \|[^|]*\| ([\d.]+) \| −([\d.]+) \| ([\d. ]+) \| ([\d.]+) \|$"
ROWS = [
    (row[0], row[1], row[3], row[4])
    for row in re.findall(ROW, README, flags=re.MULTILINE)
]
LOSSES = {row[0]: float(row[2]) for row in re.findall(ROW, README, flags=re.MULTILINE)}
# Top-1 of the dense and of the pruned model without fine-tuning, at the recipe's rho (STAR, Tables 4, 5 and 7).
TOP1 = {
    "deit_tiny": (72.2, 68.9),
    "deit_small": (79.8, 76.4),
    "deit_base": (81.8, 79.1),
    "lvvit_s": (83.3, 78.7),
    "lvvit_m": (83.8, 82.4),
}
TARGETS = re.findall(r"^\| `(tensorrt-[\w-]+)` \|", README, flags=re.MULTILINE)


EVERY_ROW = pytest.mark.parametrize(
    ("name", "own", "others", "saved"),
    ROWS,
    ids=lambda each: each if each.isidentifier() else "",
)


def resolved(*flags: object) -> Recipe:
    parser = argparse.ArgumentParser(exit_on_error=False)
    compile_verb.add_arguments(parser)
    return recipe_of(parser.parse_args([*map(str, flags), "--out", "nowhere"]))


@cache
def spec_of(model: str) -> ModelSpec:
    return describe(ModelRequest(model)).spec


def test_the_readme_names_every_recipe() -> None:
    recipes = {path.name for path in ENGINES.glob("*.toml")}
    assert recipes == {"demo.toml"} | {
        f"{name}.{m}.toml" for name, *_ in ROWS for m in ("star", "a-star")
    }
    assert sorted(TARGETS) == sorted(
        name for name in ALL_TARGETS if name.startswith("tensorrt-")
    )


def test_the_readme_says_what_the_paper_loses_before_fine_tuning() -> None:
    assert {
        name: pytest.approx(dense - pruned) for name, (dense, pruned) in TOP1.items()
    } == LOSSES


@EVERY_ROW
def test_a_star_saves_the_macs_that_star_saves(
    name: str, own: str, others: str, saved: str
) -> None:
    """At the ACS of the authors' code. At STAR's rho it would keep far fewer patches than the paper did."""
    del others
    star, adaptive = (
        resolved("--recipe", ENGINES / f"{name}.{method}.toml")
        for method in ("star", "a-star")
    )
    assert (star.prune.rho, star.prune.mac_reduction) == (float(own), None)
    assert (adaptive.prune.rho, adaptive.prune.mac_reduction) == (None, float(saved))
    spec, published = spec_of(star.model.name), MODELS[star.model.name]
    assert published.rho == star.prune.rho
    kept = schedule_of(resolve(star.prune), spec, acs=published.acs).keep
    assert float(saved) == round(
        1 - pruned_macs(spec, kept).total / dense_macs(spec.as_it_came).total, 3
    )


@pytest.mark.parametrize("method", ["star", "a-star"])
@EVERY_ROW
def test_every_point_of_the_paper_resolves(
    name: str, own: str, others: str, saved: str, method: str
) -> None:
    del saved
    path = ENGINES / f"{name}.{method}.toml"
    recipe = resolved("--recipe", path)
    spec = spec_of(recipe.model.name)
    assert (recipe.prune.method, recipe.lower.target) == (method, "tensorrt-fp16")
    acs = np.linspace(0.1, 0.9, spec.depth).tolist()
    for rho, target in product((own, *others.split()), TARGETS):
        layouts = ALL_TARGETS[target].layouts
        # The layout of the recipes is shrinking.
        layout = None if method == "star" or Layout.SHRINKING in layouts else layouts[0]
        recipe = resolved("--recipe", path, "--rho", rho, "--target", target)
        if layout is not None:
            recipe = recipe.but(lower={"layout": layout})
        settled = open_recipe(recipe)
        # Padded, a-STAR would execute STAR's counts at a rho near 1: about the dense model's.
        lowering, policy = settled.lowering, settled.policy
        assert lowering is not None and policy is not None
        assert (lowering.laid_out == Layout.PADDED) == (method == "star")
        schedule = schedule_of(policy, spec, acs=acs)
        assert schedule.method == method
        assert schedule.rho == float(rho)
        assert schedule.adaptive == (method == "a-star")
        assert schedule.pruning_layers


def test_every_command_of_the_readme_parses() -> None:
    commands = re.findall(r"^star-export compile (.*)$", README, flags=re.MULTILINE)
    assert commands
    for command in commands:
        assert recipe_in(command).images.images == Path("imagenet")


def test_fp16_leads_and_the_paper_s_times_are_of_tf32() -> None:
    _, section = README.split("### The paper's numbers")
    (compiled,) = re.findall(r"^star-export compile (.*)$", section, flags=re.MULTILINE)
    (built,) = re.findall(r"^star-export (build .*)$", section, flags=re.MULTILINE)
    star = resolved("--recipe", ENGINES / "deit_small.star.toml")
    assert star.lower.target == TARGETS[0]
    assert recipe_in(compiled) == star.but(
        images={"images": Path("imagenet")}, lower={"target": TENSORRT.name}
    )
    assert build_parser().parse_args(built.split()).tf32


def recipe_in(command: str) -> Recipe:
    """The recipe of a command of the README, whose paths are those of the repository."""
    words = [
        str(ENGINES.parent / word) if word.endswith(".toml") else word
        for word in command.split("#", maxsplit=1)[0].split()
    ]
    at = words.index("--out")
    return resolved(*words[:at], *words[at + 2 :])


def test_a_recipe_of_ones_own_over_another(tmp_path: Path) -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", README, flags=re.DOTALL)
    (tmp_path / "mine.toml").write_text(
        text.replace('"deit_small', f'"{ENGINES}/deit_small')
    )
    recipe = resolved("--recipe", tmp_path / "mine.toml")
    assert recipe.model.name == "deit_small_patch16_224"
    assert recipe.lower.target == "tensorrt-int8"
    assert recipe.prune.rho == 0.6
