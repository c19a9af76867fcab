"""Choose the units to remove, given how many of each type (BoundaryDPT, stage 1)."""

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from torch import nn

from exporter.core.base.canonical_json import from_json
from exporter.core.base.errors import DepthError
from exporter.core.base.files import Unfinished
from exporter.core.base.vocabulary import UnitType
from exporter.core.vit.protocol import PrunableViT
from exporter.depth.checkpoint import DEPTH, Depth, read_depth, with_weights
from exporter.depth.gates import Importance, gated, removable
from exporter.depth.plan import ChoiceSettings, DepthPlan, check_layers
from exporter.depth.surgery import apply_plan
from exporter.models.identity import Identity, read_metadata, save_weights
from exporter.models.registry import trainable
from exporter.models.weights import read_state_dict


@dataclass(frozen=True)
class Stage:
    """A stage of training: what to show of it, and its place in its sequence, counted from 0."""

    name: str
    index: int


# Trains a network in place; how long and with which seed follows from the stage.
Train: TypeAlias = Callable[[nn.Module, Stage], None]


@dataclass(frozen=True, eq=False)
class RankedViT:
    """A ViT without the units of a plan, its linear layers apart, and what its training says of the other units."""

    vit: PrunableViT
    plan: DepthPlan
    importance: Importance

    @classmethod
    def whole(cls, vit: PrunableViT, settings: ChoiceSettings) -> "RankedViT":
        """Return a ViT with all its units, and no importance yet; DepthError for a layer beyond the depth."""
        depth = vit.spec.depth
        for unit in UnitType:
            check_layers(f"keep_{unit}", settings.kept(unit), depth)
        return cls(vit, DepthPlan(variant=settings.variant), Importance.unknown(depth))

    def trained(self, train: Train, stage: Stage) -> "RankedViT":
        """Return it after a stage of training, with the importance that its gates learned."""
        vit = copy.deepcopy(self.vit)
        with trainable(vit), gated(vit, self.importance, self.plan.variant) as student:
            train(student, stage)
            importance = student.importance
        # Nothing more is removed; the digest is that of the trained weights.
        return RankedViT(
            apply_plan(vit, DepthPlan(), unmerged=True), self.plan, importance
        )

    def without(
        self, unit: UnitType, count: int, settings: ChoiceSettings
    ) -> "RankedViT":
        """Return it without its least important units of a type; of equal ones the first layers go."""
        scores = self.importance.of(unit)
        least = sorted(
            _candidates(self.vit, unit, settings), key=lambda layer: scores[layer - 1]
        )[:count]
        plan = self.plan.also(unit, least)
        return RankedViT(
            apply_plan(self.vit, plan, unmerged=True), plan, self.importance
        )


def spare(
    vit: PrunableViT, unit: UnitType, settings: ChoiceSettings, needed: int = 0
) -> int:
    """Return how many units of a type may go, one attention stays; DepthError if fewer than are needed."""
    most = len(_candidates(vit, unit, settings))
    if unit == UnitType.ATTENTION and most == len(vit.spec.attention_layers):
        most -= 1
    if most < needed:
        why = "one attention stays, a gated MLP keeps its activation, and so does what --keep-… names"
        raise DepthError(
            f"{unit} units", str(needed), f"at most {most}, which can go", why
        )
    return most


def _candidates(
    vit: PrunableViT, unit: UnitType, settings: ChoiceSettings
) -> list[int]:
    return [layer for layer in removable(vit)[unit] if layer not in settings.kept(unit)]


@dataclass(frozen=True)
class Skipped:
    """Reasons by image of those that could not be read; changed in place."""

    training: dict[str, str] = field(default_factory=dict)
    evaluation: dict[str, str] = field(default_factory=dict)

    def update(self, part: "Skipped") -> None:
        """Add those of another part of the search."""
        self.training.update(part.training)
        self.evaluation.update(part.evaluation)


SEARCH = "search"


@dataclass(frozen=True)
class _Mark:
    """The settings and inputs of a search, the stages that are done, and the importance that they learned."""

    run: str
    stages: int
    importance: Importance
    skipped: Skipped = field(default_factory=Skipped)
    kept: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Bookmark:
    """The state of a search after its last whole stage.

    `path` ends in .safetensors; `identity` says how to build the whole network; `run` has the settings and inputs
    of the search as text. `skipped` is filled by whoever reads images: it is written with the state, and what
    earlier stages skipped is added when that is read.
    """

    path: Path
    identity: Identity
    run: str
    skipped: Skipped = field(default_factory=Skipped)

    def write(
        self,
        stages: int,
        ranked: RankedViT,
        records: Mapping[str, object] | None = None,
    ) -> None:
        """Replace the state by that after so many stages; `records`, by name, belong to it.

        OutputError where the file cannot be written.
        """
        mark = _Mark(
            self.run, stages, ranked.importance, self.skipped, dict(records or {})
        )
        depth = Depth(ranked.plan, merged=False)
        save_weights(
            ranked.vit.model, self.identity, self.path, **{DEPTH: depth, SEARCH: mark}
        )

    def read(self, vit: PrunableViT) -> tuple[int, RankedViT, dict[str, Any]] | None:
        """Return the number of stages done, what they led to, and the records; None where there is no file.

        ArtefactError where the file is broken, or of another search.
        """
        state = Unfinished(self.path, "search", self.run).state(_read)
        if state is None:
            return None
        mark, depth = state
        self.skipped.update(mark.skipped)
        restored = with_weights(vit, depth, read_state_dict(self.path), str(self.path))
        return mark.stages, RankedViT(restored, depth.plan, mark.importance), mark.kept


def _read(path: Path) -> tuple[str, tuple[_Mark, Depth]]:
    text = read_metadata(path).get(SEARCH)
    depth = read_depth(path)
    if text is None or depth is None:
        raise ValueError("another file")
    mark = from_json(_Mark, text, source=str(path))
    return mark.run, (mark, depth)


def choose_units(
    vit: PrunableViT,
    settings: ChoiceSettings,
    train: Train,
    bookmark: Bookmark | None = None,
) -> RankedViT:
    """Train a ViT along with its gates, and remove a unit after each stage, until each count is reached.

    Args:
        vit: Any adapted ViT; it does not change.
        settings: The counts, and the units that stay.
        train: Trains a stage; stages are counted from 0.
        bookmark: Holds the state after each stage; a search that was killed continues there.

    Returns:
        The ViT without the chosen units, with the weights of the last stage.
    """
    counts = {
        UnitType.ATTENTION: settings.attention_units,
        UnitType.ACTIVATION: settings.activation_units,
    }
    for unit, count in counts.items():
        spare(vit, unit, settings, count)
    done = 0
    ranked = RankedViT.whole(vit, settings)
    state = bookmark.read(vit) if bookmark else None
    if state is not None:
        done, ranked, _ = state
    order = list(turns(settings.attention_units, settings.activation_units))
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
