"""Settings and rows that take a moment."""

from typing import Any

from tests.benchmarks.scripts import script

__all__ = ["DEIT_B", "QUICK", "TUNING", "flags", "rows_of"]

DEIT_B = "deit_base_patch16_224"
QUICK: dict[str, Any] = {"max_images": 2, "most_batch": 4, "rounds": 5, "tuning_epochs": 1, "most_units": 2}
TUNING: dict[str, Any] = {"batch_size": 12, "augment": "none"}


def flags(place: Any) -> list[str]:
    """The flags that give this place and TUNING."""
    names = (*QUICK, "images", "eval_images", "shifted_images", "stand_in", "out")
    values = {**{name: getattr(place, name) for name in names}, **TUNING}
    return [word for name, value in values.items() for word in (f"--{name.replace('_', '-')}", str(value))]


def rows_of(name: str) -> tuple[Any, ...]:
    """The rows of a table's first model: with a stand-in all are the same; of table 3 those of three
    alphas, and of the samples those without one unit."""
    rows = script("papers/reproduce.py").TABLES[name].rows
    own = (row for row in rows if row.model == rows[0].model)
    few = (row for row in own if not row.way or row.way.alpha in (None, 0.0, 0.15, 1.0))
    return tuple(row for row in few if not row.way or sum(row.way.collected or ()) < 2)
