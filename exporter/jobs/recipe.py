"""A recipe: the settings of a compilation, a record for each of its steps, and the TOML file of it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from exporter.calibration.settings import CalibrationSettings
from exporter.core.base.errors import RecipeError, reason_of
from exporter.core.base.files import GivenPath, regular, written_beside
from exporter.core.base.records import Schedule
from exporter.core.base.settings import (
    LEAST_ROUNDS,
    Batch,
    Natural,
    Positive,
    Sections,
    Settings,
    Threads,
    from_table,
    from_tables,
    option,
)
from exporter.core.base.shared_settings import class_map_option, threads_option
from exporter.core.base.targets import ONNXRUNTIME, TARGETS, Target, target_named
from exporter.core.base.vocabulary import InputKind, Layout, Method
from exporter.core.schedule.policy import Policy, resolve
from exporter.core.schedule.prune import AMOUNTS, Prune
from exporter.data.class_map import is_order, read_class_map
from exporter.models.request import ModelRequest

ValueT = TypeVar("ValueT")
Tables = dict[str, dict[str, Any]]

# The table of a recipe that says how a verb trains.
TRAINING = "training"
PRUNE = "prune"

# Longest chain of recipes that extend each other.
MOST_EXTENDS = 50


@dataclass(frozen=True, kw_only=True)
class Images(Settings):
    """The images for calibration, comparison and measurement."""

    images: GivenPath = option(
        None,
        "Images to calibrate, train or compare on: a folder of images, or of one folder per class.",
        group="images",
    )
    eval_images: GivenPath = option(
        None,
        "Images to check and measure on; by default those of --images. What trains or searches needs others.",
        group="images",
    )
    class_map: GivenPath = class_map_option()
    max_eval_images: Positive = option(
        1000,
        "Largest number of images for accuracy, drawn at random by the seed.",
        group="images",
    )
    check_images: Batch = option(
        64, "Number of images for the parity check and reference.npz.", flag=False
    )
    seed: Natural = option(
        0, "Seed of the draws of images to check and measure on.", flag=False
    )


@dataclass(frozen=True)
class Lowering(Settings):
    """The target, the layout of a-STAR's tokens in a batch, and the input of a lowered model."""

    target: str = option(
        ONNXRUNTIME.name,
        "Runtime and precision to export for.",
        TARGETS,
        group="target",
    )
    layout: Layout | None = option(
        None,
        "Memory layout of a-star's tokens in a batch; by default the best one for the target.",
        flag=False,
    )
    input_kind: InputKind = option(
        InputKind.FLOAT32,
        "Type of the input images; uint8 puts the normalisation into the graph.",
        group="target",
    )

    @property
    def row(self) -> Target:
        """The target's row, with all that is known of it."""
        return target_named(self.target)

    @property
    def laid_out(self) -> Layout:
        """The layout, given or the target's default."""
        return self.row.layout(self.layout)

    def check_method(self, method: Method | None) -> None:
        """Check that the target has the layout, and a method layouts; without a method, the dense model."""
        if (
            self.laid_out
            and self.layout is not None
            and (method is None or not method.adaptive)
        ):
            got = f"{self.layout} for {method or 'a dense model'}"
            expected = "none: its token counts are those of the graph"
            raise RecipeError("layout", got, expected, "a-star has layouts")


@dataclass(frozen=True, kw_only=True)
class Measuring(Settings):
    """How speed is measured."""

    batch: Batch = option(
        8, "Images per run in the throughput comparison.", group="measurement"
    )
    more_batches: tuple[Batch, ...] = option(
        (1, 4),
        "More batch sizes to measure, for the table of batch sizes in the report.",
        group="measurement",
        flag=False,
    )
    rounds: Natural = option(
        20,
        "Rounds of the throughput comparison, at least 5; 0: no comparison.",
        group="measurement",
    )
    threads: Threads = threads_option(flag=False)

    def check(self) -> None:
        """Raise RecipeError if there are too few rounds for quartiles."""
        super().check()
        enough = self.rounds == 0 or self.rounds >= LEAST_ROUNDS
        self.require("rounds", enough, f"0, or at least {LEAST_ROUNDS} for quartiles")


@dataclass(frozen=True, kw_only=True)
class Recipe(Sections):
    """The settings of a compilation: the record of each step, a table of the same name in TOML.

    In Python, `Recipe(model=ModelRequest("digits_vit"), prune=Prune(rho=0.7))`.
    """

    model: ModelRequest = field(default_factory=ModelRequest)
    images: Images = field(default_factory=Images)
    prune: Prune = field(default_factory=Prune)
    calibrate: CalibrationSettings = field(default_factory=CalibrationSettings)
    lower: Lowering = field(default_factory=Lowering)
    measure: Measuring = field(default_factory=Measuring)

    def policy(
        self,
        trained: Schedule | None = None,
        *,
        dense: bool = False,
        refits: bool = False,
    ) -> Policy:
        """Check what needs no model, and return how it prunes: as it was trained, where it was.

        Args:
            trained: The schedule of a checkpoint that is pruned as it was trained.
            dense: Whether the dense model is lowered, for a target of any method.
            refits: Whether the caller refits a pruned model where the recipe says so.
        """
        if not refits:
            check_no_refit(self.prune)
        order = self.images.class_map
        if order is not None and not is_order(order):
            read_class_map(order, None)
        policy = resolve(self.prune, trained)
        self.lower.check_method(None if dense else policy.method)
        return policy


@dataclass(frozen=True, kw_only=True)
class _Beside(Settings):
    """What a recipe's file has beside the tables of its sections."""

    extends: GivenPath = option(
        None, "Another recipe; values that this one does not set are taken from it."
    )
    training: dict[str, Any] = option(
        {}, "How a verb that trains does it: settings of fine-tuning."
    )


def check_no_refit(prune: Prune) -> None:
    """Raise RecipeError where a pruned model is to be refitted, which only a compilation does."""
    if prune.refit:
        expected = "false: only compile refits a pruned model"
        raise RecipeError("refit", "true", expected)


def needed(value: ValueT | None, flag: str, expected: str) -> ValueT:
    """Return the value of a flag that this step needs."""
    if value is None:
        raise RecipeError(flag, "nothing", expected)
    return value


def read_training(path: Path, settings: type[Settings]) -> Mapping[str, Any]:
    """Read the table `training` of a TOML recipe, checked against the fields of settings."""
    return from_table(
        settings, read_recipe(path).get(TRAINING, {}), f"{path}: [{TRAINING}]"
    )


def read_recipe(path: Path, above: tuple[Path, ...] = ()) -> Tables:
    """Read the tables of a TOML recipe, of which `training` is not checked; paths are relative to its folder.

    It may extend another one: values that it does not set are taken from there. `above` are the recipes that
    extend it, by their whole paths.
    """
    # The path may be invalid, and TOML may be nested deeper than the recursion limit.
    try:
        place = Path(os.path.realpath(path))
        content = msgspec.toml.decode(regular(path).read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise RecipeError(path, reason_of(error), "a TOML recipe") from None
    got = f"more than {MOST_EXTENDS} in a row" if len(above) > MOST_EXTENDS else ""
    if place in above:
        got = "a recipe that extends itself"
    if got:
        raise RecipeError(f"{path}: extends", got, "a chain that ends")
    beside = {
        name: content.pop(name) for name in ("extends", TRAINING) if name in content
    }
    values_beside = from_table(_Beside, beside, f"{path}:")
    tables = {
        name: {key: _placed(value, path.parent) for key, value in table.items()}
        for name, table in from_tables(Recipe, content, f"{path}:").items()
    }
    if TRAINING in values_beside:
        tables[TRAINING] = values_beside[TRAINING]
    extended = values_beside.get("extends")
    base = read_recipe(path.parent / extended, (*above, place)) if extended else {}
    return over(base, tables)


def _placed(value: Any, folder: Path) -> Any:
    """Return a path as one below the recipe's folder; other values, and the name of an order, as they are."""
    return folder / value if isinstance(value, Path) and not is_order(value) else value


def over(base: Tables, tables: Tables) -> Tables:
    """Return tables with the values of others over their own; an amount to prune replaces every other one."""
    merged = {name: {**base.get(name, {}), **table} for name, table in tables.items()}
    amounts = {
        name for name in AMOUNTS if tables.get(PRUNE, {}).get(name) not in (None, {})
    }
    if amounts:
        replaced = set(AMOUNTS) - amounts
        table = merged[PRUNE]
        merged[PRUNE] = {
            key: value for key, value in table.items() if key not in replaced
        }
    return {**base, **merged}


def save_recipe(recipe: Recipe, path: Path, head: str = "") -> None:
    """Write what a recipe sets as TOML, with whole paths; the head is a comment."""
    import tomli_w  # noqa: PLC0415  (a deployment machine has none)

    def plain(value: Any) -> Any:
        if isinstance(value, Mapping):  # the keys of TOML are text
            return {str(key): plain(item) for key, item in value.items()}
        if isinstance(value, Path):
            return str(value if is_order(value) else value.absolute())
        return str(value) if isinstance(value, str) else value

    tables = {name: plain(table) for name, table in recipe.changes().items() if table}
    with written_beside(path) as partial:
        comment = f"# {head}\n" if head else ""
        partial.write_text(comment + tomli_w.dumps(tables), encoding="utf-8")
