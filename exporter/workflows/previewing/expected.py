"""What pruning will leave of a model, as far as a job tells before any work."""

from dataclasses import dataclass

from exporter.models.base import PrunableViT
from exporter.records import ModelSpec, Schedule
from exporter.schedule.macs import dense_macs, schedule_macs
from exporter.workflows import steps
from exporter.workflows.recipes.amount import Amount, MacShare, Speedup
from exporter.workflows.recipes.job import Job
from exporter.workflows.recipes.planning import Planner, plan

__all__ = ["Expected", "asked_gmacs", "expected_of"]


@dataclass(frozen=True)
class Expected:
    """The schedule and its multiply-adds in units of 10⁹; None where they follow from `unknown`, "" for nothing.

    The multiply-adds are also known where the job asks for a share of them.
    """

    schedule: Schedule | None
    gmacs: float | None
    unknown: str = ""

    def macs(self, spec: ModelSpec) -> float:
        """Return the multiply-adds of an image; at most the dense ones where they are unknown."""
        return dense_macs(spec).total if self.schedule is None else schedule_macs(spec, self.schedule).total


def expected_of(job: Job, amount: Amount, vit: PrunableViT, spec: ModelSpec | None = None) -> Expected:
    """Return what an amount leaves of a model.

    Args:
        job: How it is pruned.
        amount: How much.
        vit: The model, which may be without weights.
        spec: The shape of the part of it that is pruned, by default the whole.

    Raises:
        UserError: The calibration is of another model, or the amount is out of reach.
    """
    spec, unknown = spec or vit.spec, _unknown(job)
    if unknown:
        return Expected(None, asked_gmacs(job, spec), unknown)
    calibration = steps.read_calibration(job.calibration, vit.spec)
    calibration = None if calibration is None else calibration.of_first(spec.depth)
    schedule = plan(amount, Planner.of(spec, job.scoring, calibration, job.shape))
    return Expected(schedule, schedule_macs(spec, schedule).gmacs)


def asked_gmacs(job: Job, spec: ModelSpec) -> float | None:
    """Return the multiply-adds that a share asks for, None without one."""
    if not isinstance(job.amount, MacShare):
        return None
    return (1 - job.amount.mac_reduction) * dense_macs(spec).gmacs


def _unknown(job: Job) -> str:
    """Return what the schedule still depends on, "" if on nothing."""
    if isinstance(job.amount, Speedup):
        return "measurements on this machine"
    if isinstance(job.amount, MacShare) and job.scoring.planned_by.counts_vary:
        return "the images"
    if job.follows_acs and not job.calibration.exists:
        return "the calibration"
    return ""
