"""A search that is small enough for a test: a tiny ViT, six images a half, and a few candidates."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from exporter.vocabulary import Method
from exporter.workflows.recipe import Recipe
from exporter.workflows.tuning.axes import AXES, Candidate, candidates
from exporter.workflows.tuning.settings import TuneSettings
from tests.commands import Workplace
from tests.vits import TINY

__all__ = ["FEW", "few_candidates", "recipe_for", "settings"]

FEW = {**AXES, "scorer": ("pairs", "fused"), "alpha": (None,), "mac_reduction": (0.2, 0.4)}


def few_candidates() -> tuple[Candidate, ...]:
    """ToMe, STAR and a-STAR at two shares."""
    return tuple(each for each in candidates(FEW) if each.method != Method.STAR or each.reduce == "drop")


def recipe_for(workplace: Workplace, **changes: Any) -> Recipe:
    recipe = Recipe(
        model="vit_tiny_patch16_224",
        checkpoint=workplace.checkpoint,
        model_kwargs={key: value for key, value in TINY.items() if key != "num_classes"},
        images=workplace.images,
        eval_images=workplace.images,
        max_images=4,
        gamma=2,
        batch=2,
        rounds=5,
        threads=1,
    )
    return replace(recipe, **changes)


def settings(**changes: Any) -> TuneSettings:
    values: dict[str, Any] = {"max_drop": 40.0, "runtime": "onnxruntime", "minutes": 5.0, "finalists": 2}
    return TuneSettings(**{**values, **changes})


def folder_of(place: Path) -> list[str]:
    return sorted(path.name for path in place.iterdir())
