"""All settings of a compilation; the verbs of the command line derive their flags from them."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from exporter.calibration.settings import NORMALIZE
from exporter.data.class_map import is_order
from exporter.errors import MissingDependencyError, RecipeError, reason_of
from exporter.files import GivenPath, regular, written_beside
from exporter.schedule.plan import ScheduleSettings
from exporter.settings import Positive, Settings, Share, fields_of, from_table, option
from exporter.targets import ONNXRUNTIME, TARGETS
from exporter.vocabulary import InputKind, Layout
from exporter.workflows.recipes.amount import Below1, LayerRates
from exporter.workflows.recipes.requests import Images, Measuring

__all__ = [
    "AMOUNTS",
    "A_MODEL",
    "Recipe",
    "needed",
    "read_recipe",
    "read_training",
    "save_recipe",
    "yielding",
]

ValueT = TypeVar("ValueT")


# timm's keys that a user may override; the input size is set by `model_kwargs`.
PREPROCESS_KEYS = ("interpolation", "mean", "std", "crop_pct", "crop_mode", "crop_rounding")
PreprocessKey = Annotated[str, Meta(pattern=rf"\A({'|'.join(PREPROCESS_KEYS)})\Z")]
Overrides = Annotated[dict[PreprocessKey, Any], Meta(description=f"values of {', '.join(PREPROCESS_KEYS)}")]

# The table of a recipe that says how a verb trains.
TRAINING = "training"

# Longest chain of recipes that extend each other.
MOST_EXTENDS = 50

# The fields that say how much to prune: a number, or rates; a number with rates scales these.
NUMBERS, SHAPES = ("rho", "mac_reduction"), ("rates", "schedule")
AMOUNTS = (*NUMBERS, *SHAPES)


@dataclass(frozen=True, kw_only=True)
class Recipe(Measuring, ScheduleSettings, Images):
    """The settings of a compilation: model, images, amount of pruning, target, measurements.

    The record is flat, like flags and TOML; `exporter.workflows.recipes.resolve` splits it into records for
    the steps.
    """

    model: str | None = option(
        None, "A name that `star-export models` lists, or a Hugging Face id or folder.", group="model"
    )
    checkpoint: GivenPath = option(
        None, "Trained weights: safetensors, or a torch file of tensors.", group="model"
    )
    recalibrate: bool = option(
        False,
        "Accept pruning settings other than those that the checkpoint was trained with.",
        flag=False,
    )
    num_classes: Positive | None = option(
        None, "Classes of the head; by default those of the checkpoint.", group="model", flag=False
    )
    model_kwargs: dict[str, Any] = option(
        {}, "Keyword arguments of the model, e.g. img_size=32 patch_size=4.", group="model"
    )
    preprocess: Overrides = option(
        {}, "Overrides of the model's preprocessing, e.g. crop_pct=1.0.", flag=False
    )
    device: str = option("cpu", "PyTorch device, e.g. cpu or cuda.", group="model")
    text_embeddings: GivenPath = option(
        None,
        "Text embeddings and names of classes (.npz, .safetensors), to use an image tower as a zero-shot "
        "classifier.",
        flag=False,
    )
    outputs: tuple[str, ...] = option(
        (),
        "Outputs of the model, e.g. embedding,tokens,layer:-2 (the tokens of the second-to-last block); by default "
        "logits, or the embedding of an image tower.",
        group="model",
    )

    calibration: GivenPath = option(
        None, "An existing calibration file, used instead of a new calibration.", group="how to prune"
    )
    interpolate: bool = option(
        False,
        "Accept a calibration for another input size, and interpolate its scores.",
        flag=False,
    )
    gamma: Positive | None = option(
        None,
        "Number of classes per image whose relevance is computed; by default 6, or all if there are fewer.",
        flag=False,
    )
    protocol: str = option(
        "all",
        "all: every image once. paper: ten random batches of images.",
        ("all", "paper"),
        flag=False,
    )
    normalize: str = option(
        "none",
        "Scaling of the relevance of each image and class before averaging: none, sum (to a sum of 1), or minmax "
        "(to [0, 1]).",
        NORMALIZE,
        flag=False,
    )
    relevance_dtype: str = option(
        "float64", "Precision of the relevance.", ("float64", "float32"), flag=False
    )

    rho: Share | None = option(
        None,
        "Lowest retention rate (share of its patches that a layer keeps), in (0, 1].",
        group="how much to prune",
    )
    mac_reduction: Below1 | None = option(
        None,
        "Share of the multiply-adds (MACs) to save, in (0, 1); rho is computed from it.",
        group="how much to prune",
    )
    rates: LayerRates = option(
        {},
        "Retention rates of layers, counted from 1, e.g. 4=0.7 7=0.49; other layers keep all patches. A number for "
        "how much to prune, beside them, scales them to reach it.",
        group="how much to prune",
    )
    schedule: GivenPath = option(
        None,
        "A schedule file from `plan`, with method, scorer and alpha. A number for how much to prune, "
        "where the command takes one beside it, scales its rates to reach it.",
        group="how much to prune",
    )

    target: str = option(ONNXRUNTIME.name, "Runtime and precision to export for.", TARGETS, group="target")
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

    def check(self) -> None:
        """Raise RecipeError for settings that contradict each other."""
        super().check()
        for names in (NUMBERS, SHAPES):
            told = [name for name in names if getattr(self, name) not in (None, {})]
            if len(told) > 1:
                raise RecipeError(" and ".join(told), "both", "one of them")
        given = [name for name in SHAPES if getattr(self, name) not in (None, {})]
        if self.counts is not None and given:
            raise RecipeError("counts", f"{self.counts} beside {given[0]}", "one of them")


@dataclass(frozen=True, kw_only=True)
class _RecipeFile(Recipe):
    """The settings of a recipe's file."""

    extends: GivenPath = option(None, "Another recipe; values that this one does not set are taken from it.")
    training: dict[str, Any] = option({}, "How a verb that trains does it: settings of fine-tuning.")


A_MODEL = "the name of a model, e.g. digits_vit"


def needed(value: ValueT | None, flag: str, expected: str) -> ValueT:
    """Return the value of a flag that this step needs.

    Raises:
        RecipeError: The value is None.
    """
    if value is None:
        raise RecipeError(flag, "nothing", expected)
    return value


def read_recipe(path: Path) -> Mapping[str, Any]:
    """Read the values that a TOML recipe sets, but for its table `training`; paths are relative to its folder.

    Args:
        path: The recipe. It may extend another one: values that it does not set are taken from there.

    Raises:
        RecipeError: The file is not TOML, a key or value is not one of a recipe, or recipes extend each other.
        MissingDependencyError: Python 3.10 has no TOML reader, and none is installed.
    """
    return {name: value for name, value in _read(path).items() if name != TRAINING}


def read_training(path: Path, settings: type[Settings]) -> Mapping[str, Any]:
    """Read the table `training` of a TOML recipe, checked against the fields of settings.

    Raises:
        RecipeError: As `read_recipe`; or a key is unknown, or a value has the wrong type.
        MissingDependencyError: Python 3.10 has no TOML reader, and none is installed.
    """
    return from_table(settings, _read(path).get(TRAINING, {}), f"{path}: {TRAINING}")


def _read(path: Path, above: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Return what a recipe sets; `above` are the recipes that extend it, by their whole paths."""
    # The path may be invalid, and TOML may be nested deeper than the recursion limit.
    try:
        place, table = Path(os.path.realpath(path)), msgspec.toml.decode(regular(path).read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise RecipeError(str(path), reason_of(error), "a TOML recipe") from None
    except ImportError:
        raise MissingDependencyError("tomli", "export") from None
    if place in above or len(above) > MOST_EXTENDS:
        got = "a recipe that extends itself" if place in above else f"more than {MOST_EXTENDS} in a row"
        raise RecipeError(f"{path}: extends", got, "a chain that ends")
    told = from_table(_RecipeFile, table, str(path))
    training = told.pop(TRAINING, {})
    values = {
        key: path.parent / value if isinstance(value, Path) and not is_order(value) else value
        for key, value in told.items()
    }
    extended = values.pop("extends", None)
    inherited = _read(extended, (*above, place)) if extended else {}
    merged = {**inherited.get(TRAINING, {}), **training}
    return {**yielding(inherited, values), **values, TRAINING: merged}


def save_recipe(recipe: Recipe, path: Path, head: str = "") -> None:
    """Write what a recipe sets as TOML, with whole paths; the head is a comment.

    Raises:
        OutputError: The file cannot be written.
    """
    import tomli_w  # noqa: PLC0415  (a deployment machine has none)

    def plain(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {str(key): plain(each) for key, each in value.items()}
        if isinstance(value, Path):
            return str(value if is_order(value) else value.absolute())
        if isinstance(value, dict):  # the keys of TOML are text
            return {str(key): plain(each) for key, each in value.items()}
        return str(value) if isinstance(value, str) else value

    told = ((name, getattr(recipe, name), field.default) for name, field in fields_of(Recipe).items())
    values = {name: plain(value) for name, value, default in told if value not in (default, None, {})}
    with written_beside(path) as partial:
        comment = f"# {head}\n" if head else ""
        partial.write_text(comment + tomli_w.dumps(values), encoding="utf-8")


def yielding(base: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` without its amount to prune if `values` gives any amount."""
    told = any(values.get(name) not in (None, {}) for name in AMOUNTS)
    return {key: value for key, value in base.items() if not (told and key in AMOUNTS)}
