"""Read what timm's training script saves beside the weights: the network's name, and how it prepared images."""

import logging
from pathlib import Path
from typing import Any

import timm

from exporter.models.weights import read_entries

logger = logging.getLogger(__name__)

# The argument by which the script is recognised: it is there without a value, too.
SIGN = "crop_pct"
COLOURS = ("mean", "std")
GEOMETRY = ("interpolation", "crop_pct", "crop_mode")


def saved_preprocessing(checkpoint: Path | None, name: str) -> dict[str, Any] | None:
    """Return what the arguments of a checkpoint say of the preprocessing, None where it has none of timm's.

    What they leave open, timm's config decided in training, too. A warning says so where the network was trained
    under another name than this one.
    """
    if checkpoint is None or checkpoint.suffix == ".safetensors":
        return None
    entries = read_entries(checkpoint)
    trained = entries.get("arch")
    if (
        isinstance(trained, str)
        and timm.is_model(trained)
        and _plain(trained) != _plain(name)
    ):
        text = "%s was trained as %s; preprocessing and activation of %s are taken (--model %s takes its own)"
        logger.warning(text, checkpoint, trained, name, trained)
    arguments = getattr(entries.get("args"), "__dict__", {})
    if SIGN not in arguments:
        return None
    values = {key: arguments[key] for key in GEOMETRY if arguments.get(key)}
    for key in COLOURS:
        numbers = arguments.get(key)
        if numbers:
            values[key] = tuple(numbers) if len(numbers) > 1 else tuple(numbers) * 3
    return values


def _plain(name: str) -> str:
    """Return timm's name of a network without the tag of its weights."""
    return name.removeprefix("timm/").partition(".")[0]
