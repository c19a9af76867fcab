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
from exporter.models.registry import ModelRequest, describe
from exporter.records import ModelSpec
from exporter.workflows.planning import Planner, plan
from exporter.workflows.recipe import Recipe
from exporter.workflows.resolve import resolve

ENGINES = Path(__file__).parent.parent / "engines"
README = (ENGINES / "README.md").read_text(encoding="utf-8")
# Recipe, its own rho, the others.
ROWS = re.findall(r"^\| `(\w+)\.star\.toml` \|[^|]*\| ([\d.]+) \| ([\d. ]+) \|$", README, flags=re.MULTILINE)
TARGETS = re.findall(r"^\| `(tensorrt-\w+)` \|", README, flags=re.MULTILINE)


def resolved(*flags: object) -> Recipe:
    parser = argparse.ArgumentParser(exit_on_error=False)
    compile_verb.add_arguments(parser)
    return recipe_of(parser.parse_args([*map(str, flags), "--out", "nowhere"]))


@cache
def spec_of(model: str) -> ModelSpec:
    return describe(ModelRequest(model)).spec


def test_the_readme_names_every_recipe() -> None:
    recipes = {path.name for path in ENGINES.glob("*.toml")}
    assert recipes == {"demo.toml"} | {f"{name}.{m}.toml" for name, *_ in ROWS for m in ("star", "a-star")}
    assert sorted(TARGETS) == ["tensorrt-fp16", "tensorrt-fp32", "tensorrt-int8"]


@pytest.mark.parametrize("method", ["star", "a-star"])
@pytest.mark.parametrize(
    ("name", "own", "others"), ROWS, ids=lambda each: each if each.isidentifier() else ""
)
def test_every_point_of_the_paper_resolves(name: str, own: str, others: str, method: str) -> None:
    path = ENGINES / f"{name}.{method}.toml"
    recipe = resolved("--recipe", path)
    spec = spec_of(str(recipe.model))
    assert (recipe.method, recipe.rho, recipe.target) == (method, float(own), "tensorrt-fp32")
    acs = np.linspace(0.1, 0.9, spec.depth).tolist()
    for rho, target in product((own, *others.split()), TARGETS):
        recipe = resolved("--recipe", path, "--rho", rho, "--target", target)
        job = resolve(recipe)
        assert job.lowering.layout == "padded"
        schedule = plan(job.needed_amount("plan"), Planner(spec, job.scoring, acs))
        assert (schedule.method, schedule.rho, schedule.adaptive) == (method, float(rho), method == "a-star")
        assert schedule.pruning_layers


def test_every_command_of_the_readme_parses() -> None:
    commands = re.findall(r"^star-export compile (.*)$", README, flags=re.MULTILINE)
    assert commands
    for command in commands:
        words = [
            str(ENGINES.parent / each) if each.endswith(".toml") else each
            for each in command.split("#")[0].split()
        ]
        at = words.index("--out")
        assert resolved(*words[:at], *words[at + 2 :]).images == Path("imagenet")


def test_a_recipe_of_ones_own_over_another(tmp_path: Path) -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", README, flags=re.DOTALL)
    (tmp_path / "mine.toml").write_text(text.replace('"deit_small', f'"{ENGINES}/deit_small'))
    recipe = resolved("--recipe", tmp_path / "mine.toml")
    assert (recipe.model, recipe.target, recipe.rho) == ("deit_small_patch16_224", "tensorrt-int8", 0.6)
