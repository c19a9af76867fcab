"""The one rule by which things in an order are split in two."""

from collections.abc import Iterable
from math import floor
from typing import TypeVar

ItemT = TypeVar("ItemT")


def set_apart(items: Iterable[ItemT], share: float) -> tuple[list[ItemT], list[ItemT]]:
    """Return the items that stay, and a share of them, spread evenly over their order.

    So are images split: each class of a listing gives its share, and so does every prefix
    of a random order.
    """
    rest: list[ItemT] = []
    apart: list[ItemT] = []
    for place, item in enumerate(items):
        reaches_next = floor(share * (place + 1)) > floor(share * place)
        (apart if reaches_next else rest).append(item)
    return rest, apart
