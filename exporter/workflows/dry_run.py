"""Say what a run starts from without running it: the checked settings, and the schedule with its multiply-adds."""

from dataclasses import dataclass
from typing import Any

from exporter.models.base import PrunableViT
from exporter.records import Schedule
from exporter.schedule.macs import dense_macs, schedule_macs
from exporter.settings import Settings, fields_of
from exporter.workflows import steps
from exporter.workflows.recipes.amount import MacShare
from exporter.workflows.recipes.job import Job
from exporter.workflows.recipes.planning import Planner, plan

__all__ = ["DryRun", "dry_run"]


@dataclass(frozen=True)
class DryRun:
    """What a run starts from.

    `settings` are those that differ from their defaults. `schedule` is None where it follows from `unknown`, which
    is "" otherwise; `gmacs_pruned` is then None too, unless a share of the multiply-adds is asked for.
    """

    model: str
    settings: dict[str, Any]
    gmacs_dense: float
    gmacs_pruned: float | None
    schedule: Schedule | None
    unknown: str


def dry_run(vit: PrunableViT, job: Job, *settings: Settings, unknown: str = "") -> DryRun:
    """Plan a job, if its schedule follows from nothing that a run has yet to measure.

    Args:
        vit: The model, loaded, so that a checkpoint that does not fit it has been refused.
        job: How it is pruned.
        settings: What the run was given, for the record.
        unknown: What the schedule follows from, "" to find out.

    Raises:
        UserError: The calibration is of another model, or the amount is out of reach.
    """
    calibration = steps.read_calibration(job.calibration, vit.spec, vit.weights_sha256)
    chosen, calibration = steps.with_outputs(vit, job.outputs, calibration)
    spec, unknown = chosen.spec, unknown or _unknown(job)
    dense, schedule, pruned = dense_macs(spec).gmacs, None, None
    if isinstance(job.amount, MacShare):
        pruned = (1 - job.amount.mac_reduction) * dense
    if not unknown and job.amount is not None:
        schedule = plan(job.amount, Planner.of(spec, job.scoring, calibration, job.shape))
        pruned = schedule_macs(spec, schedule).gmacs
    given = {
        name: getattr(each, name)
        for each in settings
        for name, field in fields_of(type(each)).items()
        if getattr(each, name) not in (field.default, None, {})
    }
    return DryRun(spec.name, given, dense, pruned, schedule, unknown)


def _unknown(job: Job) -> str:
    """Return what the schedule still depends on, "" if on nothing."""
    if isinstance(job.amount, MacShare) and job.scoring.planned_by.counts_vary:
        return "the images"
    if job.follows_acs and not job.calibration.exists:
        return "the calibration"
    return ""
