"""What `make test` leaves to `make test-exhaustive`: the checks that it makes, on further models and targets."""

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

# Of each way to lower a network: a class token, two, joined projections with rotations, and an adapter of its own.
FIRST_FAMILIES = ("vit", "distilled", "eva02, joined, rotary", "lvvit")


def also(*values: Any) -> Any:
    """A set of parameters that `make test` leaves out."""
    return pytest.param(*values, marks=pytest.mark.exhaustive)


def mark_further(values: Sequence[Any], first: Sequence[Any]) -> list[Any]:
    """All values; `make test` takes those of `first`."""
    assert all(value in values for value in first), "a first one that is none of them"
    return [value if value in first else also(value) for value in values]


def in_turn(causes: Iterable[Any], places: Iterable[Any]) -> list[tuple[Any, Any]]:
    """Pairs of a cause and a place, in turns until each of both had one."""
    rows, columns = [*causes], [*places]
    turns = range(max(len(rows), len(columns)))
    return [(rows[turn % len(rows)], columns[turn % len(columns)]) for turn in turns]


def mark_further_families(items: Iterable[pytest.Item]) -> None:
    """Leave out the other families of every test of lowering that runs on one of the first."""
    families: dict[Any, set[str]] = {}
    for item in items:
        if "family" in _parameters(item):
            families.setdefault(_function(item), set()).add(_parameters(item)["family"])
    for item in items:
        family = _parameters(item).get("family")
        if (
            family
            and family not in FIRST_FAMILIES
            and families[_function(item)] & {*FIRST_FAMILIES}
        ):
            item.add_marker(pytest.mark.exhaustive)


def _parameters(item: pytest.Item) -> dict[str, Any]:
    return item.callspec.params if hasattr(item, "callspec") else {}


def _function(item: pytest.Item) -> Any:
    return item.nodeid.partition("[")[0]
