"""Shared helpers for tests of the command line: the files a command left, and common arguments."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from exporter.core.base.records import Pair
from exporter.core.base.settings import fields_of, homes_of, sections_of
from exporter.jobs.recipe import Recipe
from exporter.models.request import ModelRequest
from tests.vits import TINY_SHAPE

# A recipe that keeps tests short.
BRIEF = Path(__file__).parent / "brief.toml"

NAME = "vit_tiny_patch16_224"


def recipe_file(folder: Path, **keys: Any) -> tuple[str, Path]:
    """The flag of a recipe with some settings, by the keys of flags, written into a folder."""
    path = folder / "recipe.toml"
    beside: dict[str, Any] = {
        name: keys.pop(name) for name in ("extends", "training") if name in keys
    }
    path.write_text(tomli_w.dumps({**beside, **tables_of(**keys)}), encoding="utf-8")
    return "--recipe", path


def tables_of(**keys: Any) -> dict[str, dict[str, Any]]:
    """Values by section, of keys that are the flag or the name of one setting, or `section.name`."""
    tables: dict[str, dict[str, Any]] = {}
    for key, value in keys.items():
        homes = homes_of(sections_of(Recipe), key)
        with_flag = [
            (section, name)
            for section, name in homes
            if fields_of(sections_of(Recipe)[section])[name].has_flag
        ]
        dotted = [tuple(key.split("."))] if "." in key else []
        ((section, name),) = dotted or with_flag or homes
        tables.setdefault(section, {})[name] = value
    return tables


def recipe_with(**keys: Any) -> Recipe:
    """The recipe of values by such keys."""
    return Recipe.of(tables_of(**keys))


def report_of(folder: Path) -> Any:
    """The report of an export folder, as other programs read it."""
    return json.loads((folder / "report.json").read_text(encoding="utf-8"))


def files_of(folder: Path) -> Pair[Path]:
    """The models of an export folder, as its report names them."""
    named = report_of(folder)["files"]
    return Pair(folder / named["dense"], folder / named["pruned"])


# What stages print.
PROGRESS = re.compile("✓|.* so far")


@dataclass(frozen=True)
class Outcome:
    """What a command left: its exit code and both streams."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> str:
        """The one line of a refusal."""
        lines = [
            line
            for line in self.err.splitlines()
            if line.strip() and not PROGRESS.match(line)
        ]
        assert len(lines) == 1, self.err
        assert lines[0].startswith("error: ")
        return lines[0]


Command = Callable[..., Outcome]


def succeeded(outcome: Outcome) -> Outcome:
    """The outcome, of a command that ended well."""
    assert outcome.code == 0, outcome.err
    return outcome


@dataclass(frozen=True)
class Workplace:
    """A checkpoint, images of its two classes, and what names the model: flags, a request, a recipe."""

    folder: Path
    checkpoint: Path
    images: Path

    @property
    def model(self) -> list[object]:
        kwargs = [f"{key}={value}" for key, value in TINY_SHAPE.items()]
        return [
            "--model",
            NAME,
            "--checkpoint",
            self.checkpoint,
            "--model-kwargs",
            *kwargs,
        ]

    @property
    def given(self) -> list[object]:
        """The flags of the model and of its images."""
        return [*self.model, "--images", self.images]

    @property
    def request(self) -> ModelRequest:
        return ModelRequest(NAME, self.checkpoint, model_kwargs=TINY_SHAPE)

    def recipe(self, **changes: Any) -> Recipe:
        """The model and the images, also to measure on, with more settings."""
        own = {"model": NAME, "checkpoint": self.checkpoint, "model_kwargs": TINY_SHAPE}
        return recipe_with(
            **{**own, "images": self.images, "eval_images": self.images, **changes}
        )
