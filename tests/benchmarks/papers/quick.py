"""Settings with which a row takes a moment."""

from typing import Any

from tests.benchmarks.scripts import script

__all__ = ["DEIT_B", "QUICK", "TUNING", "flags", "models_of"]

DEIT_B = "deit_base_patch16_224"
QUICK: dict[str, Any] = {"max_images": 4, "most_batch": 4, "rounds": 5, "tuning_epochs": 1}
TUNING: dict[str, Any] = {"batch_size": 12, "augment": "none"}


def flags(place: Any) -> list[str]:
    """The flags that give this place and TUNING."""
    names = (*QUICK, "images", "eval_images", "shifted_images", "stand_in", "out")
    values = {**{name: getattr(place, name) for name in names}, **TUNING}
    return [word for name, value in values.items() for word in (f"--{name.replace('_', '-')}", str(value))]


def models_of(name: str) -> list[str]:
    """The first model of a table: with a stand-in all are the same."""
    return [script("papers/star.py").TABLES[name].rows[0].model]
