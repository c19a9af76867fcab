"""Choose the images that a report shows: those on which both models disagree first, then every class in turn."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from exporter.data.images import UNKNOWN, ranked
from exporter.evaluation.accuracy import Predictions
from exporter.records import Pair

__all__ = ["Example", "chosen_examples"]

Array = np.ndarray[Any, Any]

# Images on the page.
SHOWN = 12


@dataclass(frozen=True)
class Example:
    """An image of the report: its name below the folder, its class if it is known, and both predictions."""

    image: str
    label: int | None
    dense: int
    pruned: int

    @property
    def differs(self) -> bool:
        """Whether both models give it different classes."""
        return self.dense != self.pruned


def chosen_examples(
    names: Sequence[str], found: Pair[Predictions], count: int = SHOWN
) -> tuple[Example, ...]:
    """Choose at most `count` images.

    At most half of them are images on which both models disagree; the others are stratified over the classes, by
    the label where it is known, else by the dense model's class. The same predictions give the same choice.

    Args:
        names: Of all images, in the order of the predictions.
        found: The predictions of both models.
        count: Number of images to choose.
    """
    labels = found.dense.labels
    dense, pruned = found.dense.best[:, 0], found.pruned.best[:, 0]
    order = _by_turns(np.where(labels == UNKNOWN, dense, labels))
    differing = [at for at in order if dense[at] != pruned[at]]
    same = [at for at in order if dense[at] == pruned[at]]
    most = max(count // 2, count - len(same))
    shown = differing[:most] + same[: count - min(most, len(differing))]
    return tuple(
        Example(
            names[at],
            None if labels[at] == UNKNOWN else int(labels[at]),
            dense=int(dense[at]),
            pruned=int(pruned[at]),
        )
        for at in shown
    )


def _by_turns(classes: Array) -> list[int]:
    """Return the places of all images: the first of each class, then the second of each, and so on.

    The order of the classes is drawn, so that a few of many classes are not the first few.
    """
    present = np.unique(classes).tolist()
    place = {present[at]: turn for turn, at in enumerate(ranked(len(present), "examples"))}
    seen: Counter[int] = Counter()
    keys = []
    for each in classes.tolist():
        keys.append((seen[each], place[each]))
        seen[each] += 1
    return sorted(range(len(keys)), key=keys.__getitem__)
