"""The models that numbers of units and rho stand for, before any is trained: their plans, costs and forms."""

from dataclasses import dataclass, field
from pathlib import Path

from exporter.calibration.record import Calibration, load_calibration
from exporter.depth.gates import Importance, removable
from exporter.depth.joint import Counts
from exporter.depth.plan import DepthPlan
from exporter.depth.samples import SampleBook
from exporter.depth.surgery import apply_plan
from exporter.errors import ArtefactError
from exporter.formats.canonical_json import load_json
from exporter.models.base import PrunableViT
from exporter.pruning.pruned_vit import PrunedViT
from exporter.schedule.macs import schedule_macs
from exporter.schedule.plan import ScheduleSettings
from exporter.schedule.solve import rho_for
from exporter.vocabulary import AttentionVariant, UnitType
from exporter.workflows import steps
from exporter.workflows.depth.exam import CALIBRATION, SCORING
from exporter.workflows.recipes.planning import Planner

__all__ = ["SmallerModels"]


@dataclass(frozen=True, eq=False)
class SmallerModels:
    """Models without the least important units, whose patches are pruned as those of a collection.

    Which units go, and with star the rates, are those of the whole model: once units have been chosen and trained,
    both differ a little.

    Args:
        vit: The whole model, also on the meta device: costs need no weights.
        importance: That of all units before any was removed.
        variant: What is left of a removed attention.
        scoring: How patches are pruned.
        calibration: Of the whole model, where the method needs one.
        least_rho: The least rho that any sample has.
    """

    vit: PrunableViT
    importance: Importance
    variant: AttentionVariant
    scoring: ScheduleSettings
    calibration: Calibration | None
    least_rho: float
    _planners: dict[Counts, Planner] = field(default_factory=dict)

    @classmethod
    def of(cls, vit: PrunableViT, folder: Path) -> "SmallerModels":
        """Read what a collection with several rho left in a folder.

        Raises:
            ArtefactError: A file is missing or broken, or the collection is of another model.
        """
        book, scoring = SampleBook(folder), folder / SCORING
        if not scoring.exists():
            raise ArtefactError(str(scoring), "no such file", "the folder of depth collect with --rhos")
        samples, importance = book.samples(), book.ranking()
        depth = len(importance.attention)
        if depth != vit.spec.depth:
            got = f"samples of a model of {depth} layers"
            raise ArtefactError(str(book.path), got, f"{vit.spec.depth}, as {vit.spec.name} has")
        path = folder / CALIBRATION
        return cls(
            vit,
            importance,
            samples[-1].plan.variant,
            load_json(ScheduleSettings, scoring),
            load_calibration(path) if path.exists() else None,
            min(each.rho for each in samples),
        )

    def plan(self, counts: Counts) -> DepthPlan:
        """Return the plan without the least important units of each type."""
        attention, activation = counts
        plan = DepthPlan(variant=self.variant)
        plan = plan.also(UnitType.ATTENTION, self._least(UnitType.ATTENTION)[:attention])
        return plan.also(UnitType.ACTIVATION, self._least(UnitType.ACTIVATION)[:activation])

    def within(self, counts: Counts, most: float) -> tuple[float, float] | None:
        """Return the largest rho whose MACs are at most so many, and its MACs; None if samples have no such rho.

        More patches do not make a model worse, so the largest rho is the best of these units; a polynomial may say
        otherwise between its samples.
        """
        if self.macs(counts, self.least_rho) > most:
            return None
        planner = self._planner(counts)
        schedule = rho_for(planner.of_rho, lambda each: float(schedule_macs(planner.spec, each).total), most)
        assert schedule.rho is not None
        return schedule.rho, self.macs(counts, schedule.rho)

    def macs(self, counts: Counts, rho: float) -> float:
        """Return the MACs of an image."""
        planner = self._planner(counts)
        return float(schedule_macs(planner.spec, planner.of_rho(rho)).total)

    def pruned(self, vit: PrunableViT, counts: Counts, rho: float) -> PrunedViT:
        """Return the PyTorch model; `vit` is the whole model with its weights."""
        smaller = apply_plan(vit, self.plan(counts))
        return steps.prune(smaller, self._planner(counts).of_rho(rho), self.calibration)

    def _least(self, unit: UnitType) -> list[int]:
        """Return the layers whose unit can go, the least important first."""
        scores = self.importance.of(unit)
        return sorted(removable(self.vit)[unit], key=lambda layer: scores[layer - 1])

    def _planner(self, counts: Counts) -> Planner:
        if counts not in self._planners:
            spec = apply_plan(self.vit, self.plan(counts)).spec
            self._planners[counts] = Planner.of(spec, self.scoring, self.calibration)
        return self._planners[counts]
