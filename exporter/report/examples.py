"""The images that a report shows: chosen once for all models."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from exporter.core.base.tensor_names import Array
from exporter.data.images import UNKNOWN, ranked
from exporter.measure.accuracy import Predictions

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
    def differs(self) -> str:
        """How both models differ: "lost" or "won" by pruning, "differs" where neither is right, or ""."""
        if self.dense == self.pruned:
            return ""
        if self.label == self.dense:
            return "lost"
        return "won" if self.label == self.pruned else "differs"


def chosen_examples(
    names: Sequence[str],
    dense: Predictions,
    pruned: Sequence[Predictions],
    count: int = SHOWN,
) -> list[tuple[Example, ...]]:
    """Choose at most `count` images, the same for every pruned model; return the examples of each.

    At most half of them are images on which the models disagree; the others are stratified over the classes,
    by the label where it is known, else by the dense model's class. The same predictions give the same
    choice. `names` are those of all images, in the order of the predictions.
    """
    labels = dense.labels
    first = dense.best[:, 0]
    best = np.array([predictions.best[:, 0] for predictions in pruned])
    order = _by_turns(np.where(labels == UNKNOWN, first, labels))
    agree = (best == first).all(axis=0)
    differing = [at for at in order if not agree[at]]
    same = [at for at in order if agree[at]]
    most = max(count // 2, count - len(same))
    places = differing[:most] + same[: count - min(most, len(differing))]

    def example(at: int, predicted: Array) -> Example:
        label = None if labels[at] == UNKNOWN else int(labels[at])
        return Example(
            names[at], label, dense=int(first[at]), pruned=int(predicted[at])
        )

    return [tuple(example(at, predicted) for at in places) for predicted in best]


def _by_turns(classes: Array) -> list[int]:
    """Return the places of all images: the first of each class, then the second of each, and so on.

    The order of the classes is drawn, so that a few of many classes are not the first few.
    """
    present = np.unique(classes).tolist()
    place = {
        present[at]: turn for turn, at in enumerate(ranked(len(present), "examples"))
    }
    seen: Counter[int] = Counter()
    keys = []
    for label in classes.tolist():
        keys.append((seen[label], place[label]))
        seen[label] += 1
    return sorted(range(len(keys)), key=keys.__getitem__)
