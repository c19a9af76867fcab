"""The values of settings that a fine-tuning starts from: a preset's, with a bundled model's own augmentation."""

import json
from pathlib import Path
from typing import Any

from exporter import bundled
from exporter.errors import RecipeError
from exporter.files import PathLike
from exporter.models.identity import read_identity
from exporter.training.presets import PRESETS, Augmentation

__all__ = ["preset_values"]

# The settings that say how images are augmented.
AUGMENTED = ("augment", *Augmentation.__dataclass_fields__)


def preset_values(
    preset: str,
    model: str | None = None,
    checkpoint: PathLike | None = None,
    *,
    own_augmentation: bool = True,
) -> dict[str, Any]:
    """Return the values of `FinetuneSettings` that differ from its defaults.

    A bundled model, and a checkpoint of one, is augmented as in its own training.

    Args:
        preset: A name of PRESETS.
        model: The model's name; what the checkpoint says of itself goes before it.
        checkpoint: The weights to train, None for those that come with the name.
        own_augmentation: False: augment as the preset says, whatever the model.

    Raises:
        RecipeError: There is no such preset.
        ArtefactError: What the checkpoint says of itself is broken.
    """
    if preset not in PRESETS:
        raise RecipeError("--preset", repr(preset), f"one of {', '.join(PRESETS)}")
    identity = None if checkpoint is None else read_identity(Path(checkpoint))
    known = bundled.MODELS.get(identity.name if identity else model or "")
    if known is None or not own_augmentation:
        return dict(PRESETS[preset])
    trained = json.loads(known.record.read_text(encoding="utf-8"))["settings"]
    return {**PRESETS[preset], **{name: trained[name] for name in AUGMENTED if name in trained}}
