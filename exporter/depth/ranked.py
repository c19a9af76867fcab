"""A ViT without some units, whose other units have an importance: trained and pruned in turns."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from torch import nn

from exporter.depth.gates import Importance, gated, removable
from exporter.depth.plan import DepthPlan
from exporter.depth.settings import UnitSettings
from exporter.depth.surgery import apply_plan
from exporter.errors import DepthError
from exporter.models.base import PrunableViT
from exporter.models.registry import trainable
from exporter.vocabulary import UnitType

__all__ = ["RankedViT", "Stage", "Train", "spare"]


@dataclass(frozen=True)
class Stage:
    """A stage of training: what to show of it, and its place in its sequence, counted from 0."""

    name: str
    index: int


# Trains a network in place; how long and with which seed follows from the stage.
Train: TypeAlias = Callable[[nn.Module, Stage], None]


@dataclass(frozen=True, eq=False)
class RankedViT:
    """A ViT without the units of a plan, its linear layers apart, and what its training says of the other units.

    The methods return new ViTs.
    """

    vit: PrunableViT
    plan: DepthPlan
    importance: Importance

    @classmethod
    def whole(cls, vit: PrunableViT, settings: UnitSettings) -> "RankedViT":
        """Return a ViT with all its units, and no importance yet.

        Raises:
            DepthError: A layer that should keep a unit is beyond the depth.
        """
        for unit in UnitType:
            beyond = max(settings.kept(unit), default=0)
            if beyond > vit.spec.depth:
                expected = f"layers from 1 to {vit.spec.depth}, the model's depth"
                raise DepthError(f"keep_{unit}", f"layer {beyond}", expected)
        return cls(vit, DepthPlan(variant=settings.variant), Importance.unknown(vit.spec.depth))

    def trained(self, train: Train, stage: Stage) -> "RankedViT":
        """Return it after a stage of training, with the importance that its gates learned.

        Raises:
            DepthError: An attention branch cannot be gated.
        """
        vit = copy.deepcopy(self.vit)
        with trainable(vit), gated(vit, self.importance, self.plan.variant) as student:
            train(student, stage)
            importance = student.importance
        # Nothing more is removed; the digest is that of the trained weights.
        return RankedViT(apply_plan(vit, DepthPlan(), unmerged=True), self.plan, importance)

    def without(self, unit: UnitType, count: int, settings: UnitSettings) -> "RankedViT":
        """Return it without its least important units of a type; of equal ones the first layers go.

        Raises:
            DepthError: Fewer of them may go.
        """
        spare(self.vit, unit, settings, count)
        scores = self.importance.of(unit)
        least = sorted(_candidates(self.vit, unit, settings), key=lambda layer: scores[layer - 1])[:count]
        plan = self.plan.also(unit, least)
        return RankedViT(apply_plan(self.vit, plan, unmerged=True), plan, self.importance)


def spare(vit: PrunableViT, unit: UnitType, settings: UnitSettings, needed: int = 0) -> int:
    """Return how many units of a type may go; one attention stays.

    Raises:
        DepthError: They are fewer than are needed.
    """
    found = len(_candidates(vit, unit, settings))
    if unit == UnitType.ATTENTION and found == len(vit.spec.attention_layers):
        found -= 1
    if found < needed:
        why = "one attention stays, a gated MLP keeps its activation, and so does what --keep-… names"
        raise DepthError(f"{unit} units", str(needed), f"at most {found}, which can go", why)
    return found


def _candidates(vit: PrunableViT, unit: UnitType, settings: UnitSettings) -> list[int]:
    return [layer for layer in removable(vit)[unit] if layer not in settings.kept(unit)]
