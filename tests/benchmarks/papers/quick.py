"""Settings and rows that take a moment."""

from dataclasses import replace
from typing import Any

from exporter.core.base.canonical_json import to_json
from tests.benchmarks.scripts import script

DEIT_B = "deit_base_patch16_224"
QUICK: dict[str, Any] = {
    "max_images": 2,
    "most_batch": 4,
    "rounds": 5,
    "tuning_epochs": 1,
    "most_units": 2,
}
TUNING: dict[str, Any] = {"batch_size": 12, "augment": "none"}


def flags(place: Any) -> list[str]:
    """The flags that give this place and TUNING."""
    given = {
        name: value
        for name, value in vars(place).items()
        if name in place.__dataclass_fields__ and value
    }
    values = {**given, **TUNING}
    return [
        word
        for name, value in values.items()
        for word in (f"--{name.replace('_', '-')}", str(value))
    ]


def rows_of(name: str) -> tuple[Any, ...]:
    """The rows of a table's first model, and one of ToMe: with a stand-in all models are the same. Of rows that
    differ in rho, alpha, epochs or layers alone the first, and of the samples of a collection those of at most one
    unit."""
    rows = script("papers/reproduce.py").TABLES[name].rows
    found: dict[str, Any] = {}
    for row in rows:
        way = row.way
        if row.model != rows[0].model and (way is None or way.method != "tome"):
            continue
        if way is None or sum(way.collected or ()) < 2:
            found.setdefault(row.label if way is None else _kind(way), row)
    return tuple(found.values())


def _kind(way: Any) -> str:
    """A way as text, without the size of its numbers."""
    alpha = None if way.alpha is None else way.alpha in (0.0, 1.0)
    sizes = {
        name: tuple(range(1, 1 + len(getattr(way.depth, name))))
        for name in ("attention", "activation")
    }
    training = way.training and {**way.training, "epochs": 1}
    own = replace(
        way,
        rho=way.rho and 0.5,
        alpha=alpha,
        training=training,
        depth=replace(way.depth, **sizes),
    )
    return to_json(own)
