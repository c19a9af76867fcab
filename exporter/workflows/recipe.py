"""Everything that a compilation can be told, once; every verb of the command line takes its flags from here."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from exporter.errors import RecipeError
from exporter.settings import from_table, option
from exporter.vocabulary import InputKind, Layout, Method

__all__ = ["Recipe", "needed", "read_recipe"]

ValueT = TypeVar("ValueT")


# timm's keys that a user may override; the input size is the model's (`model_kwargs`).
PREPROCESS_KEYS = ("interpolation", "mean", "std", "crop_pct", "crop_mode")

# A quartile of fewer rounds is one round's word.
LEAST_ROUNDS = 5


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A compilation: the model, the images, how much to prune, what to make, how to prove it."""

    model: str | None = option(None, "A timm name, or a bundled model.")
    checkpoint: Path | None = option(None, "Trained weights: safetensors, or a torch file of tensors.")
    num_classes: int | None = option(None, "Classes of the head; the checkpoint's own by default.")
    model_kwargs: dict[str, Any] = option(
        {}, "What differs from the named model, e.g. img_size=32 patch_size=4."
    )
    preprocess: dict[str, Any] = option(
        {}, "What differs from the model's own preprocessing, e.g. crop_pct=1.0."
    )
    device: str = option("cpu", "Where PyTorch computes, e.g. cpu or cuda.")

    images: Path | None = option(None, "A folder of images, or one folder a class, to calibrate on.")
    eval_images: Path | None = option(None, "Images to compare and measure on; the calibration's by default.")
    class_map: Path | None = option(None, "JSON: folder name to class index, where sorted order is not it.")
    max_images: int = option(512, "At most so many images for calibration, drawn by the seed.")
    max_eval_images: int = option(1000, "At most so many images for accuracy, drawn by the seed.")
    check_images: int = option(64, "So many images for parity and for reference.npz.")
    seed: int = option(0, "Seed of every draw.")

    calibration: Path | None = option(None, "A calibration that was made before, in place of a new one.")
    interpolate: bool = option(
        False, "Take a calibration that was made at another input size: scores are interpolated."
    )
    gamma: int | None = option(None, "Classes an image whose relevance counts; 6, or all if there are fewer.")
    protocol: str = option("all", "all: every image once. paper: ten random batches.", ("all", "paper"))
    relevance_dtype: str = option("float64", "Precision of the relevance.", ("float64", "float32"))

    method: Method = option(
        Method.STAR,
        "star keeps a share of the patches, a-star a share of their scores' mass, image by image.",
        (Method.STAR, Method.A_STAR),
    )
    rho: float | None = option(None, "The least retention rate, in (0, 1].")
    mac_reduction: float | None = option(
        None, "Share of the MACs to save, in (0, 1); rho is then solved for."
    )
    scorer: str = option("fused", "What patches are chosen by.", ("fused", "intra", "inter", "random"))
    alpha: float | None = option(
        None, "Weight of the class token's attention in the fused score, in [0, 1]; 0.15, LV-ViT 0.3."
    )
    anchors: str = option("minmax", "Where rates of 1 and rho are put.", ("minmax", "endpoints"))

    round_to: int = option(1, "Token counts are rounded up to a multiple of this.")

    target: str = option("onnxruntime-fp32", "The runtime and precision to lower for.")
    layout: Layout | None = option(
        None,
        "How a-star's tokens lie in a batch; the target's best by default.",
        tuple(Layout),
    )
    input_kind: InputKind = option(
        InputKind.FLOAT32, "uint8 builds the normalisation into the graph.", tuple(InputKind)
    )
    batch: int = option(8, "Images per run in the throughput comparison.")
    rounds: int = option(20, "Rounds of the throughput comparison; 0 leaves it out.")
    threads: int = option(0, "CPU threads of the runtime; 0 is one a physical core.")
    sweep: tuple[float, ...] = option(
        (), "Also measure these rho, e.g. 0.9,0.7,0.5, and draw throughput against MACs."
    )

    def __post_init__(self) -> None:
        """Raise RecipeError for a value that no stage would take."""
        for name, least in (
            ("max_images", 1),
            ("max_eval_images", 1),
            ("check_images", 1),
            ("batch", 1),
            ("rounds", 0),
            ("threads", 0),
            ("round_to", 1),
        ):
            if getattr(self, name) < least:
                raise RecipeError(name, str(getattr(self, name)), f"at least {least}")
        unknown = sorted(set(self.preprocess) - set(PREPROCESS_KEYS))
        if unknown:
            raise RecipeError("preprocess", f"the key {unknown[0]!r}", f"one of {', '.join(PREPROCESS_KEYS)}")
        if 0 < self.rounds < LEAST_ROUNDS:
            raise RecipeError("rounds", str(self.rounds), f"0, or at least {LEAST_ROUNDS} for quartiles")
        if self.sweep and not (self.rounds and all(0.0 < rho <= 1.0 for rho in self.sweep)):
            got = f"{','.join(map(str, self.sweep))} in {self.rounds} rounds"
            raise RecipeError("sweep", got, "values in (0, 1], and rounds to measure them in")
        if self.rho is not None and self.mac_reduction is not None:
            raise RecipeError("rho and mac_reduction", "both", "one of them")
        if self.mac_reduction is not None and not 0.0 < self.mac_reduction < 1.0:
            raise RecipeError("mac_reduction", str(self.mac_reduction), "a share in (0, 1)")


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
    if path.resolve() in readers:
        raise RecipeError(f"{path}: extends", "a recipe that extends itself", "one that ends somewhere")
    # Here, since a deployment machine reads no TOML, and Python 3.10 has no reader of its own.
    if sys.version_info >= (3, 11):
        import tomllib  # noqa: PLC0415
    else:
        import tomli as tomllib  # noqa: PLC0415
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise RecipeError(str(path), str(error), "a TOML recipe") from None
    base = table.pop("extends", None)
    if not isinstance(base, str | None):
        raise RecipeError(f"{path}: extends", repr(base), "the path of a recipe")
    inherited = _read(path.parent / base, (*readers, path.resolve())) if base else {}
    values = from_table(Recipe, table, str(path))
    placed = {key: path.parent / value if isinstance(value, Path) else value for key, value in values.items()}
    return {**inherited, **placed}
