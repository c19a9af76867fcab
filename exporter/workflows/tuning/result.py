"""The result of a search, in records and in words, and the recipe that it found."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import tomli_w

from exporter.data.class_map import is_order
from exporter.files import written_beside
from exporter.vocabulary import Status
from exporter.workflows.recipes.recipe import Recipe
from exporter.workflows.tuning.axes import OWN, Candidate
from exporter.workflows.tuning.bench import Bench
from exporter.workflows.tuning.choice import Judged, Point

__all__ = [
    "CHART",
    "COMPILED",
    "FRONT",
    "RECIPE",
    "Baseline",
    "Tuned",
    "explained",
    "recipe_of",
    "save_recipe",
]

# What a search writes to its folder.
RECIPE, FRONT, CHART, COMPILED = "tune.toml", "front.json", "front.png", "compiled"


@dataclass(frozen=True)
class Baseline:
    """The unpruned model on a target, in the run of all others. `gain`: over fp32 on ONNX Runtime."""

    target: str
    images_per_s: float
    gain: float
    file_bytes: int


@dataclass(frozen=True)
class Tuned:
    """What a search found. None of `choice`, `recipe`, `status` and what follows if nothing qualified.

    `loss_points` and `bound_points` are measured on the final half, which no choice has read; the losses of `tried`
    and `front` on the search half. `parity`: whether the compiled pair agrees with PyTorch; None where there is no
    pair. `gain` is over the unpruned model in fp32 on ONNX Runtime. `skipped` has the reasons of the images to
    measure on that could not be read, by name; `calibration_skipped` has those of the images to calibrate on. It is
    empty where a calibration was given.
    """

    model: str
    metric: str
    max_drop: float | None
    max_ms: float | None
    dense_top1: float | None
    images_search: int
    images_final: int
    candidates: int
    tried: tuple[Point, ...]
    front: tuple[Point, ...]
    dense: tuple[Baseline, ...]
    choice: Point | None = None
    recipe: str | None = None
    status: Status | None = None
    loss_points: float | None = None
    bound_points: float | None = None
    images_per_s: float | None = None
    gain: float | None = None
    parity: bool | None = None
    explanation: str = ""
    skipped: dict[str, str] = field(default_factory=dict)
    calibration_skipped: dict[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        found = f"{self.gain:.2f} ×, {self.status}" if self.choice else "nothing found"
        return f"<Tuned {self.model}: {found}>"

    def with_choice(self, choice: Point, judged: Judged) -> "Tuned":
        """Return the result with its choice, and how that was judged."""
        return replace(
            self,
            choice=choice,
            status=judged.status,
            loss_points=judged.loss_points,
            bound_points=judged.bound_points,
            images_per_s=choice.images_per_s,
            gain=choice.gain,
        )


def explained(choice: Point | None, judged: Judged | None, tried: Sequence[Point], limit: str) -> str:
    """Say what was chosen, what it costs, and what the next faster point would have cost."""
    if choice is None or judged is None:
        if not tried:
            return f"No model is within {limit}, and no candidate was left to be timed."
        near = min(tried, key=lambda each: each.margin_points)
        return (
            f"No model is within {limit}. Nearest: {near.candidate.label}, {near.gain:.2f} × at "
            f"{near.loss_points:+.2f} points (with two standard errors {near.margin_points:+.2f})."
        )
    speed = f"{choice.images_per_s:.1f} images/s, {choice.gain:.2f} × the unpruned fp32 model on ONNX Runtime"
    told = (
        f"Chosen: {choice.candidate.label}: {speed}, {choice.file_bytes / 1e6:.1f} MB. On {judged.images} images "
        f"that no choice has used, it loses {judged.loss_points:+.2f} points, less than {judged.bound_points:+.2f} "
        f"with 95 % confidence: {judged.status}."
    )
    faster = [each for each in tried if each.images_per_s > choice.images_per_s]
    if not faster:
        return f"{told} No candidate that was timed is faster."
    after = min(faster, key=lambda each: each.images_per_s)
    return (
        f"{told} The next faster point, {after.candidate.label}, has {after.images_per_s:.1f} images/s and loses "
        f"{after.loss_points:+.2f} points on the search half."
    )


def recipe_of(recipe: Recipe, candidate: Candidate, bench: Bench) -> dict[str, Any]:
    """Return the values of the recipe that compiles a candidate of a search by a recipe.

    A candidate that prunes nothing has no amount; weights trained for pruning record their own schedule.
    """
    network, schedule = bench.networks[candidate.weights], bench.schedule(candidate)
    how: dict[str, Any] = {
        **candidate.how,
        "method": str(candidate.method),
        "rho": None if schedule is None else schedule.rho,
        "calibration": network.calibration_file if candidate.calibrated else None,
    }
    own: dict[str, Any] = {
        "model": recipe.model if candidate.weights == OWN else None,
        "checkpoint": network.checkpoint,
        "recalibrate": (recipe.recalibrate and candidate.weights == OWN) or None,
        "num_classes": recipe.num_classes,
        "model_kwargs": recipe.model_kwargs,
        "preprocess": recipe.preprocess,
        "images": recipe.images,
        "eval_images": recipe.eval_images,
        "class_map": recipe.class_map,
        "seed": recipe.seed,
        **(how if candidate.amount else {}),
        "target": candidate.target,
        "batch": recipe.batch,
        "rounds": recipe.rounds,
        "threads": recipe.threads,
    }
    return {
        name: str(value if is_order(value) else value.absolute()) if isinstance(value, Path) else value
        for name, value in own.items()
        if value not in (None, {})
    }


def save_recipe(values: dict[str, Any], path: Path, command: Sequence[str]) -> None:
    """Write a recipe as TOML, with the command that found it.

    Raises:
        OutputError: The file cannot be written.
    """
    with written_beside(path) as partial:
        head = f"# Found by: {shlex.join(command)}\n" if command else ""
        partial.write_text(head + tomli_w.dumps(values), encoding="utf-8")
