"""Choose the units to remove, given how many of each type (BoundaryDPT, stage 1).

One unit at a time, the least important of its type after a stage of training; the types alternate.
"""

from collections.abc import Iterator

from exporter.depth.bookmark import Bookmark
from exporter.depth.ranked import RankedViT, Stage, Train, spare
from exporter.depth.settings import ChoiceSettings
from exporter.models.base import PrunableViT
from exporter.vocabulary import UnitType

__all__ = ["choose_units", "turns"]


def choose_units(
    vit: PrunableViT, settings: ChoiceSettings, train: Train, bookmark: Bookmark | None = None
) -> RankedViT:
    """Train a ViT along with its gates, and remove a unit after each stage, until each count is reached.

    Args:
        vit: Any adapted ViT; it does not change.
        settings: The counts, and the units that stay.
        train: Trains a stage; stages are counted from 0.
        bookmark: Holds the state after each stage; a search that was killed continues there.

    Returns:
        The ViT without the chosen units, with the weights of the last stage.

    Raises:
        DepthError: Fewer units of a type may go, or a unit is no module of the network.
        ArtefactError: The bookmark is of another search.
    """
    counts = {
        UnitType.ATTENTION: settings.attention_units,
        UnitType.ACTIVATION: settings.activation_units,
    }
    for unit, count in counts.items():
        spare(vit, unit, settings, count)
    found = bookmark.read(vit) if bookmark else None
    done, ranked = found or (0, RankedViT.whole(vit, settings))
    order = list(turns(**{str(unit): count for unit, count in counts.items()}))
    for index, unit in enumerate(order[done:], start=done):
        stage = Stage(f"stage {index + 1} of {len(order)}: {unit}", index)
        ranked = ranked.trained(train, stage).without(unit, 1, settings)
        if bookmark:
            bookmark.write(index + 1, ranked)
    return ranked


def turns(attention: int, activation: int) -> Iterator[UnitType]:
    """Yield the type of each unit to remove: in turns, that of which more go first; of equal ones activations."""
    left = {UnitType.ACTIVATION: activation, UnitType.ATTENTION: attention}
    order = sorted(left, key=left.__getitem__, reverse=True)
    while any(left.values()):
        for unit in order:
            if left[unit]:
                left[unit] -= 1
                yield unit
