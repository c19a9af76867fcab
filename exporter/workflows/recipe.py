"""Everything that a compilation can be told, once; every verb of the command line takes its flags from here."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from exporter.errors import RecipeError
from exporter.schedule.plan import ScheduleSettings
from exporter.settings import Positive, Share, from_table, option
from exporter.targets import ONNXRUNTIME, TARGETS
from exporter.vocabulary import InputKind, Layout
from exporter.workflows.amount import Above1, Below1, LayerRates
from exporter.workflows.requests import Images, Measuring

__all__ = ["AMOUNTS", "Recipe", "needed", "read_recipe", "yielding"]

ValueT = TypeVar("ValueT")


# timm's keys that a user may override; the input size is the model's (`model_kwargs`).
PREPROCESS_KEYS = ("interpolation", "mean", "std", "crop_pct", "crop_mode")

# Recipes that extend each other in a row.
MOST_EXTENDS = 50

# The fields that say how much to prune: one of them is given.
AMOUNTS = ("rho", "mac_reduction", "speedup", "rates", "schedule")


@dataclass(frozen=True, kw_only=True)
class Recipe(Measuring, ScheduleSettings, Images):
    """A compilation: the model, the images, how much to prune, what to make, how to prove it.

    It is flat, as flags and TOML are; `exporter.workflows.resolve` makes the records of it that steps take.
    """

    model: str | None = option(None, "A timm name, or a bundled model.")
    checkpoint: Path | None = option(None, "Trained weights: safetensors, or a torch file of tensors.")
    num_classes: Positive | None = option(None, "Classes of the head; the checkpoint's own by default.")
    model_kwargs: dict[str, Any] = option(
        {}, "What differs from the named model, e.g. img_size=32 patch_size=4."
    )
    preprocess: dict[str, Any] = option(
        {}, "What differs from the model's own preprocessing, e.g. crop_pct=1.0."
    )
    device: str = option("cpu", "Where PyTorch computes, e.g. cpu or cuda.")

    calibration: Path | None = option(None, "A calibration that was made before, in place of a new one.")
    interpolate: bool = option(
        False, "Take a calibration that was made at another input size: scores are interpolated."
    )
    gamma: Positive | None = option(
        None, "Classes an image whose relevance counts; 6, or all if there are fewer."
    )
    protocol: str = option("all", "all: every image once. paper: ten random batches.", ("all", "paper"))
    relevance_dtype: str = option("float64", "Precision of the relevance.", ("float64", "float32"))

    rho: Share | None = option(None, "The least retention rate, in (0, 1].")
    mac_reduction: Below1 | None = option(
        None, "Share of the MACs to save, in (0, 1); rho is then solved for."
    )
    speedup: Above1 | None = option(
        None, "Dense ÷ pruned time to reach on this machine; rho is then searched for by measurements."
    )
    rates: LayerRates = option(
        {}, "Rates at 1-based layers in place of rho, e.g. 4=0.7 7=0.49; the other layers keep everything."
    )
    schedule: Path | None = option(
        None, "A schedule that `plan` or `search` left; method, scorer and alpha are taken from it."
    )

    target: str = option(ONNXRUNTIME.name, "The runtime and precision to lower for.", TARGETS)
    layout: Layout | None = option(None, "How a-star's tokens lie in a batch; the target's best by default.")
    input_kind: InputKind = option(InputKind.FLOAT32, "uint8 builds the normalisation into the graph.")
    sweep: tuple[Share, ...] = option(
        (), "Also measure these rho, e.g. 0.9,0.7,0.5, and draw throughput against MACs."
    )

    def check(self) -> None:
        """Raise RecipeError for values that do not go together."""
        super().check()
        told = [name for name in AMOUNTS if getattr(self, name) not in (None, {})]
        if len(told) > 1:
            raise RecipeError(" and ".join(told), "both" if len(told) == 2 else "all", "one of them")
        unknown = sorted(set(self.preprocess) - set(PREPROCESS_KEYS))
        if unknown:
            raise RecipeError("preprocess", f"the key {unknown[0]!r}", f"one of {', '.join(PREPROCESS_KEYS)}")
        if self.sweep and not self.rounds:
            got = f"{','.join(map(str, self.sweep))} in no rounds"
            raise RecipeError("sweep", got, "rounds to measure them in")


def needed(value: ValueT | None, flag: str, expected: str) -> ValueT:
    """The value of a flag that this step cannot do without.

    Raises:
        RecipeError: It was not given.
    """
    if value is None:
        raise RecipeError(flag, "nothing", expected)
    return value


def read_recipe(path: Path) -> Mapping[str, Any]:
    """The values that a TOML recipe sets; its paths are taken from where the recipe lies.

    `extends` names another recipe beside it, whose values stand where this one sets none.

    Raises:
        RecipeError: The file is not TOML, a key or value is not one of a recipe, or recipes extend each other.
    """
    return _read(path, ())


def _read(path: Path, readers: tuple[Path, ...]) -> dict[str, Any]:
    # Here, since a deployment machine reads no TOML, and Python 3.10 has no reader of its own.
    if sys.version_info >= (3, 11):
        import tomllib  # noqa: PLC0415
    else:
        import tomli as tomllib  # noqa: PLC0415
    # A path may hold what no path may, and TOML may nest deeper than Python recurses.
    try:
        place = path.resolve()
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise RecipeError(str(path), str(error), "a TOML recipe") from None
    if place in readers or len(readers) > MOST_EXTENDS:
        got = "a recipe that extends itself" if place in readers else f"more than {MOST_EXTENDS} in a row"
        raise RecipeError(f"{path}: extends", got, "one that ends somewhere")
    base = table.pop("extends", None)
    if not isinstance(base, str | None):
        raise RecipeError(f"{path}: extends", repr(base), "the path of a recipe")
    inherited = _read(path.parent / base, (*readers, place)) if base else {}
    values = from_table(Recipe, table, str(path))
    placed = {key: path.parent / value if isinstance(value, Path) else value for key, value in values.items()}
    return {**yielding(inherited, placed), **placed}


def yielding(base: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe's values that stand where others are given too: an amount to prune gives way to any other amount."""
    told = any(values.get(name) not in (None, {}) for name in AMOUNTS)
    return {key: value for key, value in base.items() if not (told and key in AMOUNTS)}
